//! A strict parser of the Prometheus text format.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub help: String,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// Parses a text, or returns what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Family>, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut families: Vec<Family> = Vec::new();
    let mut names = BTreeSet::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
            .ok_or_else(|| format!("a block does not begin with its help: {line}"))?;
        if !names.insert(name.to_owned()) {
            return Err(format!("{name} has two blocks"));
        }
        let kind = lines
            .next()
            .and_then(|line| line.strip_prefix(&format!("# TYPE {name} ")))
            .ok_or_else(|| format!("{name} has no type"))?;
        let mut family = Family {
            name: name.to_owned(),
            kind: kind.to_owned(),
            help: help.to_owned(),
            samples: Vec::new(),
        };
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            family.samples.push(sample(line)?);
        }
        check(&family)?;
        families.push(family);
    }
    Ok(families)
}

fn sample(line: &str) -> Result<Sample, String> {
    let wrong = |what: &str| format!("{what}: {line}");
    let end = line.find(['{', ' ']).ok_or_else(|| wrong("no value"))?;
    let (name, mut rest) = line.split_at(end);
    if name.is_empty()
        || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')
    {
        return Err(wrong("not a name"));
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) =
                rest.split_once("=\"").ok_or_else(|| wrong("a label has no value"))?;
            if label.is_empty()
                || !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            {
                return Err(wrong("not a label"));
            }
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().ok_or_else(|| wrong("a quote is not closed"))? {
                    (at, '"') => break at,
                    (_, '\\') => match characters.next().map(|(_, next)| next) {
                        Some('n') => value.push('\n'),
                        Some(same @ ('"' | '\\')) => value.push(same),
                        _ => return Err(wrong("an escape that is none")),
                    },
                    (_, plain) => value.push(plain),
                }
            };
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(wrong("a label twice"));
            }
            let after = after.get(end + 1..).unwrap_or_default();
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}').ok_or_else(|| wrong("the labels do not end"))?;
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or_else(|| wrong("no space before the value"))?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "NaN" => f64::NAN,
        number => number.parse().map_err(|_| wrong("not a number"))?,
    };
    Ok(Sample { name: name.to_owned(), labels, value })
}

fn check(family: &Family) -> Result<(), String> {
    let name = &family.name;
    if family.samples.is_empty() {
        return Err(format!("{name} has no line"));
    }
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        if !seen.insert((&sample.name, &sample.labels)) {
            return Err(format!("twice: {sample:?}"));
        }
        let allowed: &[&str] = match family.kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            "counter" | "gauge" => &[""],
            other => return Err(format!("{name} is a {other}")),
        };
        if !allowed.iter().any(|end| sample.name == format!("{name}{end}")) {
            return Err(format!("{} is in the block of {name}", sample.name));
        }
        if family.kind == "counter" && (sample.value < 0.0 || !sample.value.is_finite()) {
            return Err(format!("a counter is {}: {sample:?}", sample.value));
        }
    }
    if family.kind == "histogram" { histogram(family) } else { Ok(()) }
}

/// The buckets of one set of labels, its count, and whether it has a sum.
type Buckets = (Vec<(f64, f64)>, Option<f64>, bool);

/// Checks that buckets only grow and that the last one contains every observation.
fn histogram(family: &Family) -> Result<(), String> {
    let mut sets: BTreeMap<BTreeMap<String, String>, Buckets> = BTreeMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le");
        let set = sets.entry(labels).or_default();
        if sample.name.ends_with("_bucket") {
            let bound = bound.ok_or("a bucket without its bound")?;
            let bound =
                if bound == "+Inf" { f64::INFINITY } else { bound.parse().map_err(|_| bound)? };
            set.0.push((bound, sample.value));
        } else if sample.name.ends_with("_count") {
            set.1 = Some(sample.value);
        } else {
            set.2 = true;
        }
    }
    for (labels, (buckets, count, has_sum)) in sets {
        let grows = buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
        let whole =
            buckets.last().is_some_and(|last| last.0.is_infinite() && Some(last.1) == count);
        if !grows || !whole || !has_sum {
            return Err(format!(
                "{} {labels:?} is no histogram: {buckets:?} {count:?}",
                family.name
            ));
        }
    }
    Ok(())
}

#[test]
fn parser_rejects_texts_that_a_scraper_rejects() {
    let block = |lines: &str| format!("# HELP a_b Words.\n# TYPE a_b gauge\n{lines}");
    assert!(parse(&block("a_b{x=\"y\"} 1\n")).is_ok());
    for bad in [
        "a_b{x=\"y\"} 1\na_b{x=\"y\"} 2\n",
        "a_b{x=\"y} 1\n",
        "a_b{x=\"\\q\"} 1\n",
        "a_b one\n",
        "a_b{x=\"y\"}1\n",
        "c 1\n",
        "",
        "a_b 1",
    ] {
        assert!(parse(&block(bad)).is_err(), "{bad}");
    }
    let twice = block("a_b 1\n").repeat(2);
    assert!(parse(&twice).is_err());
}
