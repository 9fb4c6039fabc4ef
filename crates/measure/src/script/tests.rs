use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Script, ScriptError> {
    Script::parse("test", text, &[("scale", 3)])
}

fn simple(text: &str) -> Vec<String> {
    let script = parse(text).expect("well-formed");
    let mut out = Vec::new();
    let mut variables = script.variables(1);
    script
        .run::<EvaluationError>(&mut variables, |s, v| {
            out.push(s.with_values(v));
            Ok(())
        })
        .expect("evaluates");
    out
}

fn value(expression: &str) -> Result<i64, EvaluationError> {
    let script = parse(&format!("\\set x {expression}\nselect :x;")).expect("well-formed");
    let mut found = 0;
    script.run::<EvaluationError>(&mut script.variables(1), |s, v| {
        found = s.parameters(v)[0].parse().expect("a number");
        Ok(())
    })?;
    Ok(found)
}

fn complaint(text: &str) -> String {
    parse(text).expect_err("malformed").to_string()
}

#[test]
fn select_only_stays_within_the_tables() {
    let script = Script::select_only(2);
    let mut variables = script.variables(42);
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    for _ in 0..20_000 {
        script
            .run::<EvaluationError>(&mut variables, |s, v| {
                let aid: i64 = s.parameters(v)[0].parse().expect("a number");
                (low, high) = (low.min(aid), high.max(aid));
                Ok(())
            })
            .expect("evaluates");
    }
    assert!((1..200).contains(&low) && (199_800..=200_000).contains(&high), "{low} {high}");
}

#[test]
fn arithmetic() {
    for (text, expected) in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("10 - 3 - 2", 5),
        ("2 * :scale", 6),
        ("abs(-4) + least(3, 1, 2) + greatest(3, 1)", 8),
        ("mod(17, 5)", 2),
        ("random(5, 5)", 5),
        ("- - 3", 3),
        ("RANDOM(1,1)", 1),
        ("-9223372036854775807 - 1", i64::MIN),
        ("(-9223372036854775807 - 1) % -1", 0),
    ] {
        assert_eq!(value(text), Ok(expected), "{text}");
    }
    assert_eq!(value("1 / 0"), Err(EvaluationError::DivisionByZero));
    assert_eq!(value("1 % 0"), Err(EvaluationError::DivisionByZero));
    assert_eq!(value("9223372036854775807 + 1"), Err(EvaluationError::Overflow));
    assert_eq!(value("random(2, 1)"), Err(EvaluationError::EmptyRange));
}

#[test]
fn statements_end_at_semicolons_outside_of_quotes() {
    assert_eq!(
        simple("select ';', \";\", $$;$$, $a$;$$;$a$, E'\\';' -- ;\n , 1 /* ; /* ; */ ; */;\nselect (1;2);select 3"),
        ["select ';', \";\", $$;$$, $a$;$$;$a$, E'\\';' -- ;\n , 1 /* ; /* ; */ ; */", "select (1;2)", "select 3"]
    );
    assert_eq!(simple(";; ;\nselect 1;;"), ["select 1"]);
    assert_eq!(simple("-- a comment\n/* another */ select 1;"), ["select 1"]);
}

#[test]
fn variables_are_replaced_where_they_are_variables() {
    assert_eq!(
        simple("\\set a 5\nselect :a, ':a', \":a\", x::int, $$:a$$, f(b := :a), '1:a' -- :a\n;"),
        ["select 5, ':a', \":a\", x::int, $$:a$$, f(b := 5), '1:a' -- :a"]
    );
    let script = parse("\\set a 5\n\\set b 6\nselect :b, :a, :b;").expect("well-formed");
    let statement = script.statements().next().expect("one");
    assert_eq!(statement.with_parameters(), "select $1, $2, $1");
    let mut values = Vec::new();
    script
        .run::<EvaluationError>(&mut script.variables(1), |s, v| {
            values = s.parameters(v);
            Ok(())
        })
        .expect("evaluates");
    assert_eq!(values, ["6", "5"]);
}

#[test]
fn a_failing_statement_ends_the_run() {
    #[derive(Debug, PartialEq)]
    struct Stop;
    impl From<EvaluationError> for Stop {
        fn from(_: EvaluationError) -> Self {
            Stop
        }
    }
    let script = parse("select 1; select 2; select 3;").expect("well-formed");
    let mut seen = 0;
    let result = script.run(&mut script.variables(1), |_, _| {
        seen += 1;
        if seen == 2 { Err(Stop) } else { Ok(()) }
    });
    assert_eq!((result, seen), (Err(Stop), 2));
}

#[test]
fn what_is_wrong_comes_with_its_line() {
    for (text, part) in [
        ("select 1;\n\\sleep 1 s\n", "test, line 2: \\sleep is not supported"),
        ("\n\nselect :nope;", "test, line 3: the variable :nope is used before it is set"),
        ("\\set a :b + 1\n", "the variable :b"),
        ("\\set a\nselect 1;", "needs a name and an expression"),
        ("\\set 1a 5\nselect 1;", "not a name"),
        ("\\set a 1.5\nselect 1;", "whole numbers"),
        ("\\set a 99999999999999999999\nselect 1;", "64-bit"),
        ("\\set a random_zipfian(1,2,3)\nselect 1;", "random_zipfian() is not supported"),
        ("\\set a random(1)\nselect 1;", "takes two arguments, not 1"),
        ("\\set a (1\nselect 1;", "lacks a ')'"),
        ("\\set a 1 2\nselect 1;", "cannot read"),
        ("select 'x;\n", "a quote has no end"),
        ("select $$x;\n", "$$ has no end"),
        ("select 1 /* x;\n", "a comment has no end"),
        ("-- nothing\n", "no statement"),
    ] {
        let complaint = complaint(text);
        assert!(complaint.contains(part), "{text:?}: {complaint}");
    }
    assert!(complaint(&format!("\\set a {}1\nselect 1;", "(".repeat(100_000))).contains("nests"));
    assert!(complaint(&format!("\\set a 1{}\nselect 1;", "+1".repeat(300_000))).contains("operators"));
    assert!(complaint(&format!("\\set a 1{}\nselect 1;", "*1".repeat(300_000))).contains("operators"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[\\\\a-z0-9:;'\"$()*/ \n+-éE]{0,60}") {
        let _ = parse(&text);
    }

    #[test]
    fn what_is_cut_is_put_together_again(text in "[a-z0-9 ,=<>+]{1,40}") {
        prop_assume!(!text.trim().is_empty());
        prop_assert_eq!(simple(&format!("{text};")), vec![text.trim().to_owned()]);
    }

    #[test]
    fn random_stays_within_its_bounds(low in -1000i64..1000, width in 0i64..1000) {
        let v = value(&format!("random({low}, {})", low + width)).expect("a value");
        prop_assert!((low..=low + width).contains(&v));
    }
}
