//! Explains what is wrong with a cron pattern: which field, its value and its bounds.

use croner::Cron;

/// The fields of a pattern of seven. One of five has neither second nor year, one of six no year.
const FIELDS: [(&str, u32, u32); 7] = [
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 7),
    ("year", 1, 5000),
];

/// Explains why the parser refuses a pattern, whose own error names neither field nor value.
pub(super) fn why(cron: &str) -> String {
    let parts: Vec<&str> = cron.split_whitespace().collect();
    let fields = match parts.len() {
        5 => FIELDS.get(1..6),
        6 => FIELDS.get(..6),
        7 => FIELDS.get(..),
        _ => None,
    };
    let Some(fields) = fields else {
        return format!(
            "the number of its fields is {}; it has five (minute, hour, day, month, weekday) such as \
             \"0 3 * * *\"",
            parts.len()
        );
    };
    for (index, (part, field)) in parts.iter().zip(fields).enumerate() {
        // The other fields match everything, so that this one decides.
        let alone: Vec<&str> =
            (0..parts.len()).map(|other| if other == index { *part } else { "*" }).collect();
        if alone.join(" ").parse::<Cron>().is_err() {
            return field_error(*field, part);
        }
    }
    "its fields do not go together; write five such as \"0 3 * * *\"".to_owned()
}

fn field_error((name, least, most): (&str, u32, u32), text: &str) -> String {
    for part in text.split(',') {
        let range = part.split('/').next().unwrap_or_default();
        let ends: Vec<&str> = range.split('-').collect();
        let numbers: Vec<Option<u32>> = ends.iter().map(|end| end.parse().ok()).collect();
        for (end, number) in ends.iter().zip(&numbers) {
            let is_number = !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
            if is_number && number.is_none_or(|number| number < least || number > most) {
                return format!("{name} {end} is out of {least} to {most}");
            }
        }
        if let [Some(first), Some(last)] = numbers.as_slice()
            && first > last
        {
            return format!("{name} {range} is a range that ends before it begins");
        }
    }
    format!(
        "{name} {text:?} is not understood; it is a number from {least} to {most}, *, a range such \
         as {least}-{}, a step such as */2, or a list of them",
        least + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_cron_names_the_field_its_value_and_its_bounds() {
        for (cron, reason) in [
            ("61 * * * *", "minute 61 is out of 0 to 59"),
            ("0 99 * * *", "hour 99 is out of 0 to 23"),
            ("0 0 0 * *", "day 0 is out of 1 to 31"),
            ("0 0 1-40 * *", "day 40 is out of 1 to 31"),
            ("0 0 * 1,13 *", "month 13 is out of 1 to 12"),
            ("0 0 * * 99999999999", "weekday 99999999999 is out of 0 to 7"),
            ("61 * * * * *", "second 61 is out of 0 to 59"),
            ("50-10 * * * *", "minute 50-10 is a range that ends before it begins"),
        ] {
            assert_eq!(why(cron), reason, "{cron}");
        }
        for (cron, words) in [
            ("x * * * *", "minute \"x\" is not understood; it is a number from 0 to 59"),
            ("* * * * */0", "weekday \"*/0\" is not understood"),
            ("0 0 1--9 * *", "day \"1--9\" is not understood"),
            ("nonsense", "the number of its fields is 1; it has five"),
            ("", "the number of its fields is 0"),
            ("* * * * * * * *", "the number of its fields is 8"),
        ] {
            assert!(why(cron).starts_with(words), "{cron}: {}", why(cron));
        }
    }
}
