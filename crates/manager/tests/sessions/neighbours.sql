-- In each database, before the first script: what the neighbours need. Scripts do not look at this.
create schema evil;
grant all on schema evil to public;
create table evil.t (id text, v text);
insert into evil.t values ('wrong', 'neighbour'), ('wrong', 'neighbour');
create table evil.u (id text, v text);
create table evil.item (id text, name text, price text);
insert into evil.item values ('wrong', 'neighbour', 'wrong');
create table evil.own (n int);
create sequence evil.seq start 900000;
create sequence evil.own_seq start 700000;
create function evil.f(int) returns text language sql as $$select 'neighbour'$$;
create function evil.twice(int) returns int language sql as $$select -1$$;
create view evil.vw as select 'neighbour'::text as id;
create function evil.changes(text) returns void language plpgsql as $$
begin
  perform set_config('work_mem', $1, false);
  set search_path = evil;
  set datestyle = 'SQL, DMY';
end$$;
create function evil.changes_by_trigger() returns trigger language plpgsql as $$
begin
  perform set_config('app.last', 'neighbour', false);
  set intervalstyle = iso_8601;
  return new;
end$$;
create table evil.triggers (n int);
create trigger changes before insert on evil.triggers for each row execute function evil.changes_by_trigger();
grant all on all tables in schema evil to public;
grant all on all sequences in schema evil to public;
