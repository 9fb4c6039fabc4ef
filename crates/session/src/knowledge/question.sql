SET LOCAL transaction_isolation TO 'read committed';
SET LOCAL statement_timeout TO 0;
SET LOCAL jit TO off;
WITH stamp AS MATERIALIZED (
  SELECT pg_catalog.hashtextextended(pg_catalog.concat_ws('/',
    VERSIONS(pg_proc), VERSIONS(pg_trigger), VERSIONS(pg_rewrite), VERSIONS(pg_attrdef), VERSIONS(pg_constraint),
    VERSIONS(pg_policy), VERSIONS(pg_index), VERSIONS(pg_inherits), VERSIONS(pg_partitioned_table), VERSIONS(pg_type),
    VERSIONS(pg_operator), VERSIONS(pg_cast), VERSIONS(pg_amproc), VERSIONS(pg_event_trigger), VERSIONS(pg_extension),
    (SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat(c.oid, '.', c.relname), 0))
       FROM pg_catalog.pg_class c WHERE c.oid >= $FIRST)
  ), 0) AS version
),
changed AS MATERIALIZED (
  SELECT COALESCE(s.version <> $KNOWN, true) AS yes FROM stamp s
),
funcs AS MATERIALIZED (
  SELECT p.oid, p.proname, l.lanname, p.prosrc, p.proargdefaults,
    CASE WHEN p.pronargs >= 1 AND (p.pronargs - p.pronargdefaults) <= 1
           AND EXISTS (SELECT FROM pg_catalog.pg_type t WHERE t.oid = p.proargtypes[0]
                         AND t.typtype = ANY (ARRAY['c', 'd', 'p']::pg_catalog.char[]))
         THEN '.' ELSE '' END AS notation
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
  WHERE (SELECT c.yes FROM changed c)
    AND p.oid >= $FIRST
    AND NOT (l.lanname = ANY (ARRAY['c', 'internal']::pg_catalog.name[])
      AND EXISTS (SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = CLASS(pg_proc) AND d.objid = p.oid AND d.deptype = 'e'::pg_catalog.char))
),
size AS MATERIALIZED (
  SELECT pg_catalog.count(*) > $FUNCTIONS
      OR COALESCE(pg_catalog.sum(pg_catalog.octet_length(f.prosrc)), 0) > $BYTES AS too_many
  FROM funcs f
),
fits AS MATERIALIZED (
  SELECT c.yes AND NOT s.too_many AS yes FROM changed c, size s
),
danger AS MATERIALIZED (
  SELECT pg_catalog.concat(':funcid (?:', pg_catalog.string_agg(p.oid::pg_catalog.text, '|'), ') ') AS calls,
    pg_catalog.concat(':relid ', CLASS(pg_settings)::pg_catalog.oid, ' ') AS view
  FROM pg_catalog.pg_proc p
  WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
    AND p.oid <= $FIRST
    AND (p.proname ~ '^pg_(try_)?advisory_(un)?lock'
      OR p.proname = ANY (ARRAY['set_config', 'currval', 'lastval', 'setseed', 'query_to_xml', 'query_to_xmlschema',
        'query_to_xml_and_xmlschema', 'ts_stat', 'pg_replication_origin_session_setup',
        'pg_replication_origin_session_reset', 'pg_create_logical_replication_slot',
        'pg_create_physical_replication_slot']::pg_catalog.name[]))
),
defined AS (
  SELECT a.adrelid AS rel, a.adbin::pg_catalog.text AS tree, false AS rule, false AS reads FROM pg_catalog.pg_attrdef a
  UNION ALL
  SELECT r.ev_class, pg_catalog.concat(r.ev_action, ' ', r.ev_qual), true, true
    FROM pg_catalog.pg_rewrite r WHERE r.oid >= $FIRST
  UNION ALL
  SELECT k.conrelid, k.conbin::pg_catalog.text, false, false
    FROM pg_catalog.pg_constraint k WHERE k.conbin IS NOT NULL AND k.oid >= $FIRST
  UNION ALL
  SELECT p.polrelid, pg_catalog.concat(p.polqual, ' ', p.polwithcheck), false, true FROM pg_catalog.pg_policy p
  UNION ALL
  SELECT t.tgrelid, t.tgqual::pg_catalog.text, false, false FROM pg_catalog.pg_trigger t WHERE t.tgqual IS NOT NULL
  UNION ALL
  SELECT i.indrelid, pg_catalog.concat(i.indexprs, ' ', i.indpred), false, false
    FROM pg_catalog.pg_index i WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL
  UNION ALL
  SELECT p.partrelid, p.partexprs::pg_catalog.text, false, false
    FROM pg_catalog.pg_partitioned_table p WHERE p.partexprs IS NOT NULL
  UNION ALL
  SELECT '0'::pg_catalog.oid, t.typdefaultbin::pg_catalog.text, false, false
    FROM pg_catalog.pg_type t WHERE t.typdefaultbin IS NOT NULL AND t.oid >= $FIRST
),
reached AS (
  SELECT t.tgfoid AS func, t.tgrelid AS rel FROM pg_catalog.pg_trigger t
  UNION ALL
  SELECT d.refobjid,
    CASE WHEN d.classid = CLASS(pg_rewrite) THEN (SELECT r.ev_class FROM pg_catalog.pg_rewrite r WHERE r.oid = d.objid)
         WHEN d.classid = CLASS(pg_attrdef) THEN (SELECT a.adrelid FROM pg_catalog.pg_attrdef a WHERE a.oid = d.objid)
         WHEN d.classid = CLASS(pg_constraint) THEN (SELECT k.conrelid FROM pg_catalog.pg_constraint k WHERE k.oid = d.objid)
         WHEN d.classid = CLASS(pg_policy) THEN (SELECT p.polrelid FROM pg_catalog.pg_policy p WHERE p.oid = d.objid)
         WHEN d.classid = CLASS(pg_trigger) THEN (SELECT t.tgrelid FROM pg_catalog.pg_trigger t WHERE t.oid = d.objid)
         WHEN d.classid = CLASS(pg_class)
           THEN COALESCE((SELECT i.indrelid FROM pg_catalog.pg_index i WHERE i.indexrelid = d.objid), d.objid)
         ELSE '0'::pg_catalog.oid END
  FROM pg_catalog.pg_depend d
  WHERE d.refclassid = CLASS(pg_proc) AND d.refobjid >= $FIRST
    AND d.classid <> ALL (ARRAY[CLASS(pg_proc), CLASS(pg_event_trigger), CLASS(pg_language), CLASS(pg_foreign_data_wrapper),
      CLASS(pg_am), CLASS(pg_statistic_ext), CLASS(pg_publication_rel), CLASS(pg_extension)]::pg_catalog.oid[])
),
edges AS (
  SELECT r.ev_class AS source, d.refobjid AS target
    FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
    WHERE d.classid = CLASS(pg_rewrite) AND d.refclassid = CLASS(pg_class) AND d.refobjid <> r.ev_class
      AND r.oid >= $FIRST
  UNION ALL
  SELECT p.polrelid, d.refobjid
    FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_policy p ON p.oid = d.objid
    WHERE d.classid = CLASS(pg_policy) AND d.refclassid = CLASS(pg_class) AND d.refobjid <> p.polrelid
  UNION ALL
  SELECT i.inhparent, i.inhrelid FROM pg_catalog.pg_inherits i
  UNION ALL
  SELECT k.confrelid, k.conrelid FROM pg_catalog.pg_constraint k
    WHERE k.contype = 'f'::pg_catalog.char
      AND (k.confupdtype = ANY (ARRAY['c', 'n', 'd']::pg_catalog.char[])
        OR k.confdeltype = ANY (ARRAY['c', 'n', 'd']::pg_catalog.char[]))
)
SELECT 'd',
  (SELECT COALESCE(pg_catalog.hashtextextended(pg_catalog.string_agg(
      pg_catalog.concat_ws(':', s.setdatabase, s.setrole, s.setconfig), ';' ORDER BY s.setdatabase, s.setrole), 0), 0)
     FROM pg_catalog.pg_db_role_setting s
     WHERE s.setdatabase = ANY (ARRAY['0'::pg_catalog.oid,
         (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())])
       AND s.setrole = ANY (ARRAY['0'::pg_catalog.oid,
         (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = SESSION_USER)]))::pg_catalog.text,
  pg_catalog.getdatabaseencoding()::pg_catalog.text, null::pg_catalog.text, null::pg_catalog.text
UNION ALL
SELECT 'v', s.version::pg_catalog.text, null, null, null FROM stamp s
UNION ALL
SELECT 'x', null, null, null, null FROM size s WHERE s.too_many
UNION ALL
SELECT 'f', f.oid::pg_catalog.text, HEX(f.proname), HEX(f.lanname), pg_catalog.concat(f.notation,
    pg_catalog.encode(pg_catalog.convert_to(CASE
      WHEN f.prosrc = '' AND f.lanname = 'sql'::pg_catalog.name
        THEN COALESCE(pg_catalog.substring(pg_catalog.pg_get_functiondef(f.oid),
          pg_catalog.concat(pg_catalog.chr(10), '((BEGIN ATOMIC|RETURN ).*)')), '')
      ELSE f.prosrc END, pg_catalog.getdatabaseencoding()), 'hex'))
  FROM funcs f WHERE (SELECT y.yes FROM fits y)
UNION ALL
SELECT 'r', r.func::pg_catalog.text, HEX(c.relname), null, null
  FROM reached r JOIN funcs f ON f.oid = r.func LEFT JOIN pg_catalog.pg_class c ON c.oid = r.rel
  WHERE (SELECT y.yes FROM fits y)
UNION ALL
SELECT 'r', '0', HEX(c.relname),
    (SELECT pg_catalog.string_agg(m.texts[1], ';')
       FROM pg_catalog.regexp_matches(d.tree, ':constvalue [0-9]+ [[] ([^]]*)[]]', 'g') m(texts)), null
  FROM danger x, defined d LEFT JOIN pg_catalog.pg_class c ON c.oid = d.rel
  WHERE (SELECT y.yes FROM fits y) AND (d.tree ~ x.calls OR (d.rule AND d.tree ~ x.view))
UNION ALL
SELECT 'c', HEX(c.relname), null, null, null
  FROM defined d JOIN pg_catalog.pg_class c ON c.oid = d.rel
  WHERE (SELECT y.yes FROM fits y) AND d.reads AND EXISTS (SELECT
    FROM pg_catalog.regexp_matches(d.tree, ':[a-z]*funcid ([0-9]+) ', 'g') m(texts)
      JOIN pg_catalog.pg_proc p ON p.oid = (m.texts[1])::pg_catalog.oid JOIN pg_catalog.pg_language l ON l.oid = p.prolang
    WHERE p.provolatile = 'v'::pg_catalog.char AND l.lanname = ANY (ARRAY['c', 'internal']::pg_catalog.name[]))
UNION ALL
SELECT 'c', HEX(c.relname), null, null, null
  FROM pg_catalog.pg_class c
  WHERE (SELECT y.yes FROM fits y) AND c.relkind = 'f'::pg_catalog.char AND c.oid >= $FIRST
UNION ALL
SELECT 'w', e.evtfoid::pg_catalog.text, e.evtevent::pg_catalog.text, null, null
  FROM pg_catalog.pg_event_trigger e WHERE (SELECT y.yes FROM fits y)
UNION ALL
SELECT 'p', d.objid::pg_catalog.text, d.refobjid::pg_catalog.text, null, null
  FROM pg_catalog.pg_depend d JOIN funcs f ON f.oid = d.refobjid
  WHERE (SELECT y.yes FROM fits y) AND d.classid = CLASS(pg_proc) AND d.refclassid = CLASS(pg_proc)
UNION ALL
SELECT 'q', f.oid::pg_catalog.text, null, null, null
  FROM funcs f, danger x
  WHERE (SELECT y.yes FROM fits y) AND f.proargdefaults IS NOT NULL AND f.proargdefaults::pg_catalog.text ~ x.calls
UNION ALL
SELECT 'e', HEX(s.relname), HEX(t.relname), null, null
  FROM edges e JOIN pg_catalog.pg_class s ON s.oid = e.source JOIN pg_catalog.pg_class t ON t.oid = e.target
  WHERE (SELECT y.yes FROM fits y) AND t.oid >= $FIRST
    AND s.relkind = ANY (ARRAY['r', 'v', 'm', 'f', 'p']::pg_catalog.char[])
    AND t.relkind = ANY (ARRAY['r', 'v', 'm', 'f', 'p']::pg_catalog.char[])
