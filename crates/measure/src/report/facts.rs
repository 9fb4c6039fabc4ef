//! The surroundings of a measurement as a list of names and values.

use super::environment::Environment;

/// What a reader must know to judge the numbers, in the order of reading. What is not known is left out.
pub(super) fn facts(e: &Environment) -> Vec<(String, String)> {
    let mut facts = vec![
        ("program".to_owned(), e.tool.clone()),
        ("started".to_owned(), e.started_at.clone()),
        ("system".to_owned(), format!("{}, kernel {}", e.host.system, e.host.kernel)),
        ("processor".to_owned(), format!("{} of {}", e.host.processors, e.host.processor)),
        ("memory".to_owned(), format!("{:.1} GiB", e.host.memory_kib as f64 / 1_048_576.0)),
    ];
    facts.extend(e.host.load.map(|load| ("load when it started".to_owned(), format!("{load}"))));
    facts.extend(e.floor.iter().map(|floor| ("the host's own floor".to_owned(), floor.words())));
    facts.extend(e.targets.clone());
    if let Some(server) = &e.server {
        facts.push(("server".to_owned(), format!("PostgreSQL {}", server.version)));
        facts.extend(server.settings.clone());
    }
    facts
}
