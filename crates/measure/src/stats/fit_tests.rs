use super::*;

fn observations(points: &[(f64, f64)]) -> Vec<Observation> {
    points.iter().map(|(n, us)| Observation { n: *n, us: *us }).collect()
}

fn close(value: f64, wanted: f64, within: f64) {
    assert!((value - wanted).abs() <= within, "{value} instead of {wanted}");
}

/// PostgreSQL 16 without huge pages (A. Potapov, "Init connection time grows quadratically", pgsql-hackers, 2025).
const PUBLISHED_MS: [(f64, f64); 5] =
    [(1024.0, 435.0), (2048.0, 1062.0), (4096.0, 3284.0), (8192.0, 11617.0), (16384.0, 43391.0)];

#[test]
fn recovers_the_published_growth() {
    let points: Vec<(f64, f64)> = PUBLISHED_MS.iter().map(|(n, ms)| (*n, ms * 1e3)).collect();
    let growth = Growth::of(&observations(&points)).expect("a fit");
    close(growth.power_law.exponent.value, 1.67, 0.005);
    let interval = growth.power_law.exponent.interval.expect("an interval");
    close((interval.high - interval.low) / 2.0, 0.23, 0.005);
    for (local, wanted) in growth.local_exponents.iter().zip([1.29, 1.63, 1.82, 1.90]) {
        close(*local, wanted, 0.005);
    }
    let u_shape: Vec<f64> = growth.power_law.residuals.iter().map(|r| (1.0 + r.relative).ln()).collect();
    for (residual, wanted) in u_shape.iter().zip([0.16, -0.11, -0.14, -0.04, 0.12]) {
        close(*residual, wanted, 0.006);
    }
    let model = &growth.linear_quadratic;
    close(model.alpha_us.value / 1e3, 0.231, 0.0005);
    close(model.beta_us.value / 1e3, 0.000_147, 0.000_000_5);
    close(model.crossover.expect("a crossover"), 1570.0, 10.0);
    let relative: Vec<f64> = model.residuals.iter().map(|r| r.relative.abs()).collect();
    assert!(relative[0] < 0.12 && relative[1..].iter().all(|r| *r < 0.04), "{relative:?}");
    assert_eq!(growth.better, Better::LinearQuadratic);
    assert!(model.aicc < growth.power_law.aicc, "{growth:?}");
}

#[test]
fn a_line_has_exponent_one() {
    let points: Vec<(f64, f64)> = (8..15)
        .flat_map(|power| {
            let n = f64::from(1 << power);
            [0.98, 1.01, 1.02].map(|wobble| (n, 70.0 * n * wobble))
        })
        .collect();
    let growth = Growth::of(&observations(&points)).expect("a fit");
    close(growth.power_law.exponent.value, 1.0, 0.001);
    let interval = growth.power_law.exponent.interval.expect("an interval");
    assert!(interval.contains(1.0) && interval.high < 1.01, "{interval:?}");
    close(growth.linear_quadratic.alpha_us.value, 70.0, 0.6);
    assert!(growth.linear_quadratic.beta_us.interval.expect("an interval").contains(0.0));
}

#[test]
fn a_pure_power_is_told_from_a_line_with_a_square() {
    let wobble = [1.01, 0.99, 1.005, 0.995, 1.0, 1.003, 0.998, 1.002];
    let points: Vec<(f64, f64)> =
        (6..14).zip(wobble).map(|(power, w)| (f64::from(1 << power), f64::from(1 << power).powf(1.5) * w)).collect();
    let growth = Growth::of(&observations(&points)).expect("a fit");
    assert_eq!(growth.better, Better::PowerLaw, "{growth:?}");
}

#[test]
fn too_little_is_said_plainly() {
    assert_eq!(Growth::of(&[]), Err(Unfit::Sizes));
    assert_eq!(Growth::of(&observations(&[(5.0, 1.0), (5.0, 2.0)])), Err(Unfit::Sizes));
    assert_eq!(Growth::of(&observations(&[(5.0, 0.0), (6.0, 2.0)])), Err(Unfit::NotPositive));
    assert_eq!(Growth::of(&observations(&[(0.0, 1.0), (6.0, 2.0)])), Err(Unfit::NotPositive));
    assert_eq!(Growth::of(&observations(&[(5.0, f64::NAN), (6.0, 2.0)])), Err(Unfit::NotPositive));
    let two = Growth::of(&observations(&[(10.0, 10.0), (100.0, 100.0)])).expect("two sizes make a line");
    close(two.power_law.exponent.value, 1.0, 1e-9);
    assert_eq!((two.power_law.exponent.interval, two.power_law.aicc), (None, None));
    let two = Growth::of(&observations(&[(2048.0, 187_344.0), (16_384.0, 1_901_233.0)])).expect("two sizes");
    assert_eq!((two.aicc_difference, two.better), (None, Better::Neither), "both models fit exactly");
}

#[test]
fn slower_than_linear_has_no_crossover() {
    let points = observations(&[(64.0, 1000.0), (128.0, 1400.0), (256.0, 2000.0), (512.0, 2800.0)]);
    let growth = Growth::of(&points).expect("a fit");
    assert!(growth.linear_quadratic.beta_us.value < 0.0);
    assert_eq!(growth.linear_quadratic.crossover, None);
    assert!(growth.power_law.exponent.value < 0.6);
    // Where the parabola falls below zero it is no model at all.
    let points = observations(&[(1.0, 100.0), (100.0, 110.0), (110.0, 100.0)]);
    let growth = Growth::of(&points).expect("a fit");
    assert!(growth.linear_quadratic.at(110.0) < 0.0, "{growth:?}");
    assert_eq!((growth.better, growth.aicc_difference), (Better::PowerLaw, None));
    assert!(growth.linear_quadratic.residuals.is_empty());
}

#[test]
fn order_changes_nothing_and_json_brings_it_back() {
    let mut points = observations(&[(64.0, 1000.0), (128.0, 2100.0), (256.0, 4300.0), (256.0, 4400.0)]);
    let growth = Growth::of(&points).expect("a fit");
    points.rotate_left(2);
    let turned = Growth::of(&points).expect("a fit");
    assert_eq!(turned.power_law.residuals.len(), 3);
    close(turned.power_law.exponent.value, growth.power_law.exponent.value, 1e-9);
    assert_eq!(growth.local_exponents.len(), 2);
    let json = serde_json::to_string(&growth).expect("json");
    let back: Growth = serde_json::from_str(&json).expect("back");
    close(back.power_law.exponent.value, growth.power_law.exponent.value, 1e-9);
    assert_eq!((back.better, back.observations), (growth.better, growth.observations));
}
