//! What it costs to look at a statement: `cargo bench -p pgusher-sql`. Prints nanoseconds per statement and per byte, the median
//! of many rounds. No comparison, no history: a table to read.

use std::hint::black_box;
use std::time::Instant;

use pgusher_sql::body::{Definition, facts_of};
use pgusher_sql::{Bounds, Cache, Facts, Key, Limits, Outline};

const STATEMENTS: &[(&str, &str)] = &[
    ("begin", "BEGIN"),
    ("pgbench select", "SELECT abalance FROM pgbench_accounts WHERE aid = 4711;"),
    ("pgbench update", "UPDATE pgbench_accounts SET abalance = abalance + 17 WHERE aid = 4711;"),
    (
        "orm select",
        r#"SELECT "users"."id", "users"."email", "users"."created_at", COUNT("orders"."id") AS "orders_count" FROM "users" LEFT OUTER JOIN "orders" ON "orders"."user_id" = "users"."id" WHERE "users"."tenant_id" = $1 AND LOWER("users"."email") = $2 AND "orders"."state" IN ('paid', 'sent', 'done') GROUP BY "users"."id" ORDER BY "users"."created_at" DESC LIMIT 50 OFFSET 100"#,
    ),
    ("set", "SET search_path TO tenant_17, public"),
    ("set_config", "SELECT set_config('app.tenant_id', '17', true)"),
    (
        "analytics",
        "WITH recent AS (SELECT customer_id, sum(amount) AS total, max(created_at) AS last FROM sales.orders WHERE created_at > now() - interval '30 days' GROUP BY customer_id), ranked AS (SELECT r.*, rank() OVER (PARTITION BY c.region ORDER BY r.total DESC) AS place, c.region FROM recent r JOIN sales.customers c ON c.id = r.customer_id WHERE c.active AND NOT c.deleted) SELECT region, count(*) FILTER (WHERE place <= 10), avg(total), percentile_cont(0.5) WITHIN GROUP (ORDER BY total) FROM ranked WHERE CASE WHEN region = 'EU' THEN total > 100 ELSE total > 200 END GROUP BY region HAVING count(*) > 5 ORDER BY 3 DESC NULLS LAST LIMIT 20",
    ),
];

/// The median of nanoseconds that `work` takes.
fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let mut each = 1u32;
    // Enough calls in a row that the clock does not count.
    while {
        let start = Instant::now();
        (0..each).for_each(|_| work());
        start.elapsed().as_micros() < 200
    } {
        each *= 2;
    }
    let mut rounds: Vec<f64> = (0..101)
        .map(|_| {
            let start = Instant::now();
            (0..each).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / f64::from(each)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[50]
}

fn main() {
    let key = Key::new(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
    let insert = format!(
        "INSERT INTO events (id, kind, payload) VALUES {}",
        vec!["(17, 'click', '{\"a\": 1}')"; 1000].join(", ")
    );
    let statements = STATEMENTS.iter().copied().chain([("insert of 1,000 rows", insert.as_str())]);
    println!(
        "{:<22}{:>7}  {:>12}{:>9}  {:>12}  {:>12}  quick",
        "statement", "bytes", "one pass ns", "ns/byte", "facts ns", "known text ns"
    );
    for (name, text) in statements {
        let bytes = text.as_bytes();
        let mut outline = Outline::new(key);
        let pass = nanoseconds(|| outline.read(black_box(bytes), true));
        outline.read(bytes, true);
        let facts = nanoseconds(|| {
            let _ = black_box(Facts::of(black_box(bytes), &outline, true, Limits::default()));
        });
        let mut cache = Cache::new(key, Bounds::default());
        cache.judge(bytes, true);
        let known = nanoseconds(|| {
            black_box(cache.judge(black_box(bytes), true));
        });
        println!(
            "{name:<22}{:>7}  {pass:>12.0}{:>9.2}  {facts:>12.0}  {known:>12.0}  {:?}",
            bytes.len(),
            pass / bytes.len() as f64,
            outline.quick()
        );
    }

    let body = "DECLARE n int; BEGIN IF TG_OP = 'DELETE' THEN INSERT INTO audit (op, row) VALUES (TG_OP, to_jsonb(OLD)); END IF; NEW.updated_at := now(); RETURN NEW; END";
    let definition = Definition { language: "plpgsql", body, configured: false };
    let read = nanoseconds(|| {
        black_box(facts_of(black_box(definition)));
    });
    println!("{:<22}{:>7}  {read:>12.0}{:>9.2}", "a function's body", body.len(), read / body.len() as f64);
}
