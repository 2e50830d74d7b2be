//! A timestamp exactly as Postgres stores it, infinities and far futures included.

use jiff::Timestamp;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Microseconds since 2000-01-01 UTC. Any client may insert any timestamp; reading one must not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub(crate) i64);

const UNIX_EPOCH_IN_2000: i64 = 946_684_800_000_000;

impl Moment {
    /// Returns the nearest timestamp that a calendar can show.
    pub fn to_timestamp(self) -> Timestamp {
        let nearest = if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_microsecond(self.0.saturating_add(UNIX_EPOCH_IN_2000)).unwrap_or(nearest)
    }

    /// Returns the seconds from another moment to this one; negative if that is later.
    pub(crate) fn seconds_since(self, other: Self) -> f64 {
        self.0.saturating_sub(other.0) as f64 / 1e6
    }

    /// Returns the moment that is earlier by this time; that of an infinite one is itself.
    pub(crate) fn earlier(self, by: std::time::Duration) -> Self {
        match self.0 {
            i64::MIN | i64::MAX => self,
            at => Self(at.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX))),
        }
    }
}

impl From<Timestamp> for Moment {
    fn from(time: Timestamp) -> Self {
        Self(time.as_microsecond().saturating_sub(UNIX_EPOCH_IN_2000))
    }
}

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

impl ToSql for Moment {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_of_postgres_has_a_timestamp() {
        assert_eq!(Moment(0).to_timestamp().to_string(), "2000-01-01T00:00:00Z");
        assert_eq!(Moment(i64::MAX).to_timestamp(), Timestamp::MAX);
        assert_eq!(Moment(i64::MIN).to_timestamp(), Timestamp::MIN);
    }
}
