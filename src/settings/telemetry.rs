//! Section `[telemetry]`: whether and where traces are sent (OpenTelemetry).

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::settings::values::{Reader, plain_url};

const ENDPOINT: &str = "telemetry.endpoint";
const HEADERS: &str = "telemetry.headers";
/// The path that a collector's base URL gets (OTLP specification, "OTLP/HTTP Request").
const TRACES: &str = "v1/traces";
/// The usual port of OTLP over gRPC, which is often confused with that of OTLP over HTTP.
const GRPC_PORT: u16 = 4317;

/// The settings in section `[telemetry]`.
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    /// The URL to which traces are sent; `None` means that no traces are recorded.
    pub endpoint: Option<Url>,
    /// Headers of every request to the collector. They may contain keys, so their values are marked as sensitive.
    pub headers: HeaderMap,
    pub service_name: String,
    /// The share of traces that begin here and are recorded.
    pub sample_ratio: f64,
    /// Maximum number of traces per minute; 0 means no limit.
    pub traces_per_minute: u32,
    /// Whether spans contain texts of messages, arguments and results.
    pub capture_content: bool,
    /// Maximum number of spans that wait for the collector.
    pub queue: usize,
    /// Time limit for one request to the collector.
    pub timeout: Duration,
}

impl TelemetrySettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let endpoint = endpoint(reader);
        let settings = Self {
            headers: headers(reader),
            service_name: service_name(reader),
            sample_ratio: reader.fraction("telemetry.sample_ratio", 0.0..=1.0),
            traces_per_minute: u32::try_from(reader.whole("telemetry.traces_per_minute", 0..=1_000_000)).unwrap_or_default(),
            capture_content: reader.switch("telemetry.capture_content"),
            queue: reader.whole("telemetry.queue_spans", 1..=1_000_000),
            timeout: reader.milliseconds("telemetry.timeout_ms", 10..=60_000),
            endpoint,
        };
        if settings.endpoint.is_none() && settings.capture_content {
            reader.warning("telemetry.capture_content", "has no effect: no traces are sent", "set telemetry.endpoint, or remove this");
        }
        settings
    }
}

fn endpoint(reader: &mut Reader<'_>) -> Option<Url> {
    let text = reader.optional_text(ENDPOINT)?;
    let Some(mut url) = plain_url(&text) else {
        let remedy = "write it as http://host:4318, without user, query and fragment; /v1/traces is appended";
        reader.problem(ENDPOINT, "not a plain http or https address", remedy);
        return None;
    };
    if url.port() == Some(GRPC_PORT) {
        reader.warning(ENDPOINT, "4317 is usually the port for gRPC, which is not supported", "use the port for HTTP, usually 4318");
    }
    let path = format!("{}/{TRACES}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Some(url)
}

fn service_name(reader: &mut Reader<'_>) -> String {
    reader.optional_text("telemetry.service_name").unwrap_or_else(|| {
        reader.problem("telemetry.service_name", "empty", "write the name under which traces appear, such as \"toolsieve\"");
        String::new()
    })
}

/// Reads `name=value` pairs, separated by commas, with percent-encoded values (OpenTelemetry specification, "Specifying headers via
/// environment variables").
fn headers(reader: &mut Reader<'_>) -> HeaderMap {
    let text = reader.text(HEADERS);
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = header(pair) else {
            // The pair may contain a key, so the message doesn't.
            reader.problem(HEADERS, "not a list of headers", "write name=value pairs, separated by commas, with percent-encoded values");
            return HeaderMap::new();
        };
        headers.append(name, value);
    }
    headers
}

fn header(pair: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = pair.split_once('=')?;
    let name = HeaderName::try_from(name.trim()).ok()?;
    let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
    let mut value = HeaderValue::try_from(&*value).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::header;
    use crate::settings::{Environment, Settings, Sources};

    fn load(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let environment: Environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let loaded = Settings::load(&Sources { environment, ..Sources::default() });
        loaded.map(|(settings, _)| settings).map_err(|errors| errors.to_string())
    }

    #[test]
    fn headers_are_pairs_with_encoded_values() {
        for (pair, expected) in [
            ("authorization=Bearer%20abc", Some(("authorization", "Bearer abc"))),
            (" X-Scope = a=b ", Some(("x-scope", "a=b"))),
            ("no-value", None),
            ("bad name=x", None),
            ("x=%0A", None),
            ("x=%FF", None),
        ] {
            let found = header(pair);
            let found = found.as_ref().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
            assert_eq!(found, expected, "{pair}");
        }
    }

    #[test]
    fn the_usual_variables_are_understood_and_keys_are_not_printed() {
        let settings = load(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example.org:4318/base/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20sesame,x-scope=a"),
            ("OTEL_SERVICE_NAME", "tools"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let telemetry = settings.unwrap().start.telemetry;
        assert_eq!(telemetry.endpoint.as_ref().unwrap().as_str(), "https://collector.example.org:4318/base/v1/traces");
        assert_eq!((telemetry.service_name.as_str(), telemetry.sample_ratio), ("tools", 0.25));
        assert_eq!(telemetry.headers["authorization"], "Bearer sesame");
        assert!(!format!("{telemetry:?}").contains("sesame"), "{telemetry:?}");
    }

    #[test]
    fn traces_are_off_by_default_and_mistakes_are_reported_without_keys() {
        assert!(load(&[]).unwrap().start.telemetry.endpoint.is_none());
        let problems = load(&[
            ("TOOLSIEVE_TELEMETRY__ENDPOINT", "collector:4318"),
            ("TOOLSIEVE_TELEMETRY__HEADERS", "se same"),
            ("TOOLSIEVE_TELEMETRY__SAMPLE_RATIO", "1.5"),
            ("TOOLSIEVE_TELEMETRY__QUEUE_SPANS", "0"),
        ]);
        let problems = problems.unwrap_err();
        for key in ["endpoint", "headers", "sample_ratio", "queue_spans"] {
            assert!(problems.contains(&format!("telemetry.{key}")), "{problems}");
        }
        assert!(!problems.contains("se same"), "{problems}");
    }
}
