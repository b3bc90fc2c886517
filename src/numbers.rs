//! Numbers of the command line: what is no number, or out of its range, is told what was expected.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use unisonic_engine::sampling::SamplerOptions;

/// Parses a whole number of a range.
pub fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Parses an option of sampling, `set` being where it goes; the sampler says what it may be.
pub fn sampling<T>(
    expected: &'static str,
    set: fn(&mut SamplerOptions, T),
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + Copy + Send + Sync + 'static,
{
    move |text| {
        let value = text.parse().map_err(|_| format!("expected {expected}"))?;
        let mut options = SamplerOptions::default();
        set(&mut options, value);
        options.check(u32::MAX).map_err(|error| error.to_string())?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_a_range() {
        let parse = whole(1..=1024u32);
        assert_eq!([parse("1"), parse("1024")], [Ok(1), Ok(1024)]);
        for wrong in ["0", "1025", "-1", "a", "", "1.5", "99999999999999999999"] {
            assert_eq!(parse(wrong), Err("expected a whole number from 1 to 1024".into()), "{wrong}");
        }
    }

    #[test]
    fn options_of_sampling_have_the_samplers_ranges() {
        let parse = sampling("a number, such as 0.8", |options, value: f64| options.temperature = value);
        assert_eq!(parse("0.8"), Ok(0.8));
        assert_eq!(parse("warm"), Err("expected a number, such as 0.8".into()));
        assert!(parse("-1").unwrap_err().contains("has to be"));
        assert!(parse("nan").is_err());
    }
}
