-- Once for the server: roles, which all databases share. Scripts make none.
create role app login;
create role tenant login;
create role reader;
create role writer;
create role evil_role;
grant reader, writer to app;
grant pg_read_all_data to reader, evil_role;
create role spare superuser login;
