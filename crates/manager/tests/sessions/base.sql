-- In front of each run of a script: what many scripts use.
set client_min_messages = error;
create table t (id int primary key, v text);
insert into t values (1, 'one'), (2, 'two'), (3, 'three');
create table item (id int primary key, name text, price numeric(10, 2));
insert into item select g, 'item ' || g, g * 1.5 from generate_series(1, 20) g;
create sequence seq;
create function twice(int) returns int language sql immutable as 'select $1 * 2';
create schema a;
create table a.t (id int, v text);
insert into a.t values (10, 'schema a');
create schema b;
create table b.t (id int, v text);
insert into b.t values (20, 'schema b');
grant usage on schema a, b to public;
grant all on all tables in schema public, a, b to writer, app;
grant all on all sequences in schema public to writer, app;
grant select on all tables in schema public, a, b to reader;
