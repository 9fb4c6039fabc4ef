//! The tables: T(N), both fits, their residuals, and what it cost. A column per number of clients.

use super::model::{Cell, Round, RoundKind, Spread, Storm};
use crate::report::Table;
use crate::stats::{Estimate, Growth, count, micros};
use crate::target::Side;

impl Storm {
    fn columns(&self, first: &str) -> Vec<String> {
        std::iter::once(first.to_owned()).chain(self.sizes().into_iter().map(|n| count(f64::from(n)))).collect()
    }

    /// A row with a cell per number of clients.
    fn row(&self, name: String, side: Side, of: impl Fn(&Cell) -> Option<String>) -> Option<Vec<String>> {
        let cells: Vec<Option<String>> = self.sizes().into_iter().map(|n| self.cell(side, n).and_then(&of)).collect();
        let any = cells.iter().any(Option::is_some);
        any.then(|| std::iter::once(name).chain(cells.into_iter().map(Option::unwrap_or_default)).collect())
    }

    pub(super) fn totals(&self) -> Table {
        let mut rows = Vec::new();
        let total = |r: &Round| Some(r.total_us);
        for side in self.sides() {
            let first = |c: &Cell| c.spread(RoundKind::First, total).map(|s| milliseconds(&s));
            rows.extend(self.row(format!("{side}, first round"), side, first));
            let later = |c: &Cell| c.spread(RoundKind::Later, total).map(|s| milliseconds(&s));
            rows.extend(self.row(format!("{side}, later rounds"), side, later));
            let median = |c: &Cell| {
                let spread = c.spread(RoundKind::Later, total).filter(|s| s.n() > 1)?;
                let interval = spread.interval().map(|i| format!(" ({} to {})", ms(i.low), ms(i.high)));
                Some(format!("{}{}", ms(spread.median()), interval.unwrap_or_default()))
            };
            rows.extend(self.row(format!("{side}, later, median"), side, median));
            let each = |c: &Cell| {
                let of = |kind| c.spread(kind, total).map(|s| micros(s.median() / f64::from(c.clients)));
                of(RoundKind::Later).or_else(|| of(RoundKind::First))
            };
            rows.extend(self.row(format!("{side}, time per client"), side, each));
        }
        Table {
            caption: "Time until all clients were ready, ms".to_owned(),
            columns: self.columns("clients"),
            rows,
            remark: "Mean ± standard deviation over rounds (n - 1); medians with 95 % intervals from three rounds on; only rounds \
                     in which every client became ready."
                .to_owned(),
        }
    }

    pub(super) fn fits(&self) -> Table {
        let rows = self
            .growth
            .iter()
            .map(|g| {
                let mut row = vec![format!("{}, {}", g.side, g.rounds)];
                match &g.growth {
                    None => row.extend(std::iter::repeat_n("-".to_owned(), 6)),
                    Some(growth) => row.extend(fit_cells(growth)),
                }
                row
            })
            .collect();
        let columns =
            ["rounds", "exponent b of a N^b", "a", "alpha", "beta", "N* = alpha / beta", "AICc, first - second model"];
        Table {
            caption: "How it grows: T = a N^b, and T = alpha N + beta N^2".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows,
            remark: "95 % intervals by Student's t. alpha is the cost of a client by itself, beta what each client that is there \
                     already adds to the next one; at N* both are equal. AICc of the residuals of log T: above 2 the second model is \
                     the better one, below -2 the first."
                .to_owned(),
        }
    }

    pub(super) fn residuals(&self) -> Table {
        let mut rows = Vec::new();
        for g in &self.growth {
            let Some(growth) = &g.growth else { continue };
            let name = format!("{}, {}", g.side, g.rounds);
            for (model, residuals) in
                [("a N^b", &growth.power_law.residuals), ("alpha N + beta N^2", &growth.linear_quadratic.residuals)]
            {
                let of = |c: &Cell| {
                    let found = residuals.iter().find(|r| r.n == f64::from(c.clients))?;
                    Some(format!("{:+.1} %", found.relative * 100.0))
                };
                rows.extend(self.row(format!("{name}: {model}"), g.side, of));
            }
            let from: Vec<u32> = growth.power_law.residuals.iter().map(|r| r.n as u32).collect();
            let local = |c: &Cell| {
                let at = from.iter().position(|n| *n == c.clients)?.checked_sub(1)?;
                Some(format!("{:.2}", growth.local_exponents.get(at)?))
            };
            rows.extend(self.row(format!("{name}: exponent from the number before"), g.side, local));
        }
        Table {
            caption: "Residuals: measured / model - 1".to_owned(),
            columns: self.columns("model"),
            rows,
            remark: "Residuals that lie on a curve mean that the model has the wrong shape.".to_owned(),
        }
    }

    /// What each client cost, means over rounds.
    pub(super) fn costs(&self) -> Table {
        type Show = fn(f64) -> String;
        type Figure = fn(&Round) -> Option<f64>;
        let mut rows = Vec::new();
        for side in self.sides() {
            let figures: [(&str, Show, Figure); 12] = [
                ("time per client, first tenth", micros, |r| r.first_tenth_us),
                ("time per client, last tenth", micros, |r| r.last_tenth_us),
                ("minor faults of a backend", count, |r| Some(r.server?.minor_faults)),
                ("CPU of a backend, login", micros, |r| Some(r.server?.backend_cpu_us)),
                ("CPU of a backend, whole life", micros, |r| r.server?.backend_life_cpu_us),
                ("CPU of the postmaster per client", micros, |r| Some(r.server?.postmaster_cpu_us)),
                ("CPU of the manager per client", micros, |r| r.manager_cpu_us),
                ("CPU of the load generator per client", micros, |r| Some(r.generator_cpu_us)),
                ("until the server was empty again", micros, |r| r.disconnect_us),
                ("listen queue full, times", count, |r| r.listen_overflows.map(|n| n as f64).filter(|n| *n > 0.0)),
                ("connect() tried again, times", count, |r| Some(r.retries as f64).filter(|n| *n > 0.0)),
                ("begun too late by", micros, |r| Some(r.lateness?.mean_us)),
            ];
            for (name, show, of) in figures {
                let cell = |c: &Cell| {
                    let values: Vec<f64> = c.rounds.iter().filter_map(of).collect();
                    Spread::of(values).map(|s| show(s.mean()))
                };
                rows.extend(self.row(format!("{side}, {name}"), side, cell));
            }
            let connect = |c: &Cell| c.connect.as_ref().map(|d| format!("{} / {}", micros(d.median), micros(d.p99)));
            rows.extend(self.row(format!("{side}, one connection, median / p99"), side, connect));
            let statement = |c: &Cell| c.statement.as_ref().map(|d| micros(d.median));
            rows.extend(self.row(format!("{side}, its statement, median"), side, statement));
        }
        Table {
            caption: "What it costs, means over all rounds".to_owned(),
            columns: self.columns("clients"),
            rows,
            remark: "Costs of processes can be seen only where they run on this machine. Time per client: how fast clients became \
                     ready one after another, among the first and the last tenth of them."
                .to_owned(),
        }
    }
}

fn fit_cells(growth: &Growth) -> [String; 6] {
    let (law, model) = (&growth.power_law, &growth.linear_quadratic);
    let with = |e: Estimate, show: &dyn Fn(f64) -> String| match e.interval {
        Some(i) => format!("{} ({} to {})", show(e.value), show(i.low), show(i.high)),
        None => show(e.value),
    };
    [
        with(law.exponent, &|v| format!("{v:.2}")),
        micros(law.a_us),
        with(model.alpha_us, &micros),
        with(model.beta_us, &nanos),
        model.crossover.map_or_else(|| "-".to_owned(), |n| count(n.round())),
        growth.aicc_difference.map_or_else(|| "-".to_owned(), |d| format!("{d:+.1}")),
    ]
}

/// Microseconds; below ten of them as nanoseconds.
fn nanos(us: f64) -> String {
    if us.abs() < 10.0 { format!("{} ns", count((us * 1e4).round() / 10.0)) } else { micros(us) }
}

/// Milliseconds without the unit: `480`, `31.4`.
fn ms(us: f64) -> String {
    let ms = us / 1e3;
    if ms >= 99.95 { count(ms.round()) } else { format!("{ms:.1}") }
}

fn milliseconds(spread: &Spread) -> String {
    match spread.deviation() {
        Some(deviation) => format!("{} ± {}", ms(spread.mean()), ms(deviation)),
        None => ms(spread.mean()),
    }
}
