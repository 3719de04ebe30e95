-- Run once, by the owner of the database, before the first start of the stream.
-- writer: what Tidegate connects as. It makes its tables and owns them.
CREATE ROLE writer LOGIN;
CREATE SCHEMA open AUTHORIZATION writer;

-- reader: what Grafana, dbt or Metabase connect as. It reads what the writer makes, and nothing else.
CREATE ROLE reader LOGIN;
GRANT USAGE ON SCHEMA open TO reader;
ALTER DEFAULT PRIVILEGES FOR ROLE writer IN SCHEMA open GRANT SELECT ON TABLES TO reader;
