//! Charts with made-up points: well-formed, bounded, within their frame.

use super::*;
use crate::report::html::check;
use proptest::prelude::*;

fn axis(label: &str, scale: AxisScale, unit: Unit) -> Axis {
    Axis { label: label.to_owned(), scale, unit }
}

fn of(series: Vec<Series>) -> Chart {
    Chart {
        caption: "a <caption>".to_owned(),
        x: axis("clients & more", AxisScale::Logarithmic, Unit::Count),
        y: axis("time", AxisScale::Logarithmic, Unit::Micros),
        series,
    }
}

fn series(name: &str, mark: Mark, points: Vec<Point>) -> Series {
    Series { name: name.to_owned(), colour: Colour::Other(3), mark, points }
}

/// The x coordinates of the legend's names with their widths, line by line.
fn legend_of(svg: &str, names: &[String]) -> Vec<(f64, f64, f64)> {
    let wide = svg.split("</svg>").next().expect("the wide drawing");
    names
        .iter()
        .map(|name| {
            let end = wide.find(&format!(">{name}</text>")).expect("in the legend");
            let tag = &wide[wide[..end].rfind("<text").expect("its tag")..end];
            let value = |key: &str| {
                let from = tag.find(&format!(" {key}=\"")).expect("attribute") + key.len() + 3;
                tag[from..].split('"').next().expect("closed").parse::<f64>().expect("a number")
            };
            (value("x"), value("y"), text_width(name))
        })
        .collect()
}

#[test]
fn nothing_and_what_cannot_be_drawn() {
    for points in [vec![], vec![Point::at(0.0, 5.0), Point::at(f64::NAN, 1.0), Point::at(3.0, -1.0)]] {
        for mark in [Mark::Dots, Mark::Line, Mark::LineAndDots, Mark::Model] {
            let svg = chart(&of(vec![series("s", mark, points.clone())]));
            assert_eq!(check(&svg), Ok(()));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}

#[test]
fn the_places_that_were_measured_are_the_marks() {
    let points: Vec<Point> = [512.0, 1024.0, 2048.0, 4096.0].map(|n| Point::at(n, n * 100.0)).to_vec();
    let svg = chart(&of(vec![series("s", Mark::LineAndDots, points)]));
    for mark in [">512<", ">1,024<", ">4,096<", ">50 ms<", ">500 ms<"] {
        assert!(svg.contains(mark), "{mark}: {svg}");
    }
}

#[test]
fn an_interval_and_a_model_are_seen() {
    let measured = Point { x: 10.0, y: 100.0, range: Some((80.0, 130.0)) };
    let svg = chart(&of(vec![
        series("measured", Mark::Dots, vec![measured]),
        series("model", Mark::Model, vec![Point::at(1.0, 10.0), Point::at(100.0, 1000.0)]),
    ]));
    assert!(svg.contains("whisker") && svg.contains("model"));
    assert!(svg.contains("measured, clients &amp; more 10: 100 us (80.0 us to 130 us)"), "{svg}");
}

#[test]
fn sixteen_thousand_points_make_a_small_drawing_that_keeps_its_outliers() {
    let points: Vec<Point> = (1..=16_384_u32)
        .map(|i| Point::at(f64::from(i), if i == 9000 { 1e7 } else { 1000.0 + f64::from(i % 97) * 10.0 }))
        .collect();
    let linear = |series| Chart { x: axis("index", AxisScale::Linear, Unit::Count), ..of(vec![series]) };
    let with = chart(&linear(series("s", Mark::Dots, points.clone())));
    assert!(with.len() < 90_000, "{}", with.len());
    let top = with.lines().next().expect("one line");
    // The outlier is the highest point of the axis, which ends there.
    let y = Scale::tight_logarithmic([1000.0, 1e7], 332.0, 52.0).at(1e7);
    assert!(top.contains(&format!(" {}h0", number(y))), "the outlier is gone");
    let line = chart(&linear(series("s", Mark::Line, points)));
    assert!(line.len() < 60_000, "{}", line.len());
}

#[test]
fn a_long_name_is_cut() {
    let svg = chart(&of(vec![series(&"x".repeat(400), Mark::Dots, vec![Point::at(1.0, 1.0)])]));
    assert!(svg.contains('\u{2026}'));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn names_of_the_legend_never_overlap(lengths in prop::collection::vec(1usize..60, 1..12)) {
        let names: Vec<String> =
            lengths.iter().enumerate().map(|(i, n)| format!("{i}{}", "n".repeat(*n))).collect();
        let all = names.iter().map(|n| series(n, Mark::Dots, vec![Point::at(1.0, 1.0)])).collect();
        let mut placed = legend_of(&chart(&of(all)), &names);
        placed.sort_by(|a, b| (a.1, a.0).partial_cmp(&(b.1, b.0)).expect("numbers"));
        for pair in placed.windows(2) {
            prop_assert!(pair[0].1 < pair[1].1 || pair[0].0 + pair[0].2 < pair[1].0, "{placed:?}");
        }
        prop_assert!(placed.iter().all(|p| p.0 + p.2 <= 760.0), "{placed:?}");
    }

    #[test]
    fn any_points_make_well_formed_drawings(
        points in prop::collection::vec((any::<f64>(), any::<f64>(), any::<Option<(f64, f64)>>()), 0..300),
        linear: bool,
    ) {
        let points = points.into_iter().map(|(x, y, range)| Point { x, y, range }).collect();
        let scale = if linear { AxisScale::Linear } else { AxisScale::Logarithmic };
        let mut one = of(vec![series("s", Mark::LineAndDots, points)]);
        (one.x.scale, one.y.scale) = (scale, scale);
        let svg = chart(&one);
        prop_assert_eq!(check(&svg), Ok(()));
        prop_assert!(!svg.contains("NaN"));
    }
}
