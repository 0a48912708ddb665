//! Points in time: integer milliseconds inside, RFC 3339 UTC with milliseconds in JSON.

use std::{fmt, ops};

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type},
    },
};

/// Milliseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Later by `seconds`, saturating.
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// The day in UTC, `2026-12-01`.
    pub fn day(self) -> String {
        DateTime::from_timestamp_millis(self.0).unwrap_or_default().format("%Y-%m-%d").to_string()
    }
}

/// Milliseconds from `rhs` to `self`.
impl ops::Sub for Timestamp {
    type Output = i64;

    fn sub(self, rhs: Self) -> i64 {
        self.0 - rhs.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::from_timestamp_millis(self.0).unwrap_or_default();
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = DateTime::parse_from_rfc3339(&text).map_err(serde::de::Error::custom)?;
        Ok(Self(time.timestamp_millis()))
    }
}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

impl ToSchema for Timestamp {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_milliseconds() {
        let json = serde_json::to_string(&Timestamp(1_796_083_260_123)).unwrap();
        assert_eq!(json, "\"2026-12-01T00:01:00.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), Timestamp(1_796_083_260_123));
    }
}
