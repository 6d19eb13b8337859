//! Formats the metrics as text: counters, and the current state of each component.
//!
//! Clients that accept `OpenMetrics` 1.0, such as Prometheus, get that format. All others get the older Prometheus text format
//! (0.0.4).

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::domain::catalog::tool::ServerName;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::leading::Leading;
use crate::service::learning::learn::Learning;
use crate::service::ports::{DiskSpace, Embedder, ProcessState, ServerPhase, ToolIndex, ToolServers, UpkeepStore};
use crate::service::records::audit::Audit;
use crate::service::records::metrics::Meters;
use crate::service::records::record::Recorder;

/// Prefix of all metrics, except those of the process, which have standard names.
const PREFIX: &str = "toolsieve";
/// Starts of the labels with a server's name, and with a tool's.
const SERVER_LABEL: &str = "server=\"";
const TOOL_LABEL: &str = "tool=\"";

/// The text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    OpenMetrics,
    Plain,
}

/// Reads the process's resource usage; `None` if the system does not report it.
pub(crate) type ReadProcess = Arc<dyn Fn() -> Option<ProcessState> + Send + Sync>;

/// Reads the space for the data folder; `None` if the system does not report it.
pub(crate) type ReadSpace = Arc<dyn Fn() -> Option<DiskSpace> + Send + Sync>;

/// Counters of the log: dropped lines and panics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogState {
    pub lines_dropped: u64,
    pub panics: u64,
}

pub(crate) type ReadLog = Arc<dyn Fn() -> LogState + Send + Sync>;

/// The components whose state is reported.
pub(crate) struct MetricSources {
    pub current: Arc<CurrentCatalog>,
    pub servers: Arc<dyn ToolServers>,
    pub index: Arc<dyn ToolIndex>,
    pub embedder: Arc<dyn Embedder>,
    pub store: Arc<dyn UpkeepStore>,
    pub recorder: Recorder,
    pub learning: Learning,
    pub audit: Audit,
    pub leading: Leading,
    pub process: ReadProcess,
    pub space: ReadSpace,
    pub log: ReadLog,
}

pub(crate) struct PrometheusExport {
    registry: Registry,
}

impl PrometheusExport {
    pub(crate) fn new(meters: &Meters, parts: MetricSources) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process(Arc::clone(&parts.process))));
        let ours = registry.sub_registry_with_prefix(PREFIX);
        ours.register("build", "Which program this is", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        meters.register(ours);
        ours.register_collector(Box::new(States(parts)));
        Self { registry }
    }

    /// Formats all metrics. `shows` decides for which servers the caller may see series.
    ///
    /// # Errors
    /// Never fails, because writing to a string always succeeds.
    pub(crate) fn text(&self, form: Form, shows: impl Fn(&ServerName, Option<&str>) -> bool) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(written(&text, form, shows))
    }
}

/// Converts an `OpenMetrics` text to the requested format, without the series of hidden servers and tools.
fn written(text: &str, form: Form, shows: impl Fn(&ServerName, Option<&str>) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    let is_shown = |line: &str| server_of(line).is_none_or(|server| shows(&server, label(line, TOOL_LABEL).as_deref()));
    for line in text.lines() {
        let mut push = |line: &str| {
            out.push_str(line);
            out.push('\n');
        };
        match (form, line.strip_prefix("# ")) {
            (_, None) if !is_shown(line) => {}
            (Form::OpenMetrics, _) | (Form::Plain, None) => push(line),
            // The type follows the help and determines the family's name in the older format.
            (Form::Plain, Some(comment)) if comment.starts_with("HELP ") => help = comment.splitn(3, ' ').nth(2),
            (Form::Plain, Some(comment)) => {
                let mut words = comment.split(' ');
                if let (Some("TYPE"), Some(name), Some(kind)) = (words.next(), words.next(), words.next()) {
                    let (name, kind) = match kind {
                        "counter" => (format!("{name}_total"), kind),
                        "info" => (format!("{name}_info"), "gauge"),
                        "unknown" => (name.to_owned(), "untyped"),
                        _ => (name.to_owned(), kind),
                    };
                    push(&format!("# HELP {name} {}", help.take().unwrap_or_default()));
                    push(&format!("# TYPE {name} {kind}"));
                }
            }
        }
    }
    out
}

/// The server in the labels of a line, if any.
fn server_of(line: &str) -> Option<ServerName> {
    label(line, SERVER_LABEL).map(|name| name.as_str().into())
}

/// The value of a label.
fn label(line: &str, start: &str) -> Option<String> {
    // A quote in a value is escaped, so only a label's start has this form.
    let at = line.find(start)? + start.len();
    let mut name = String::new();
    let mut characters = line[at..].chars();
    loop {
        match characters.next()? {
            '"' => return Some(name),
            '\\' => name.push(match characters.next()? {
                'n' => '\n',
                other => other,
            }),
            other => name.push(other),
        }
    }
}

/// Reports the current state of the components.
struct States(MetricSources);

impl fmt::Debug for States {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("States").finish_non_exhaustive()
    }
}

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let MetricSources { current, servers, index, embedder, store, recorder, learning, audit, leading, space, log, .. } = &self.0;
        let catalog = current.snapshot();
        gauge(&mut encoder, "catalog_tools", "Tools in the catalog", catalog.tools().len() as u64)?;
        gauge(&mut encoder, "catalog_servers", "Servers in the catalog", catalog.servers().len() as u64)?;

        let states = servers.states();
        let kind = ConstGauge::new(0_u64).metric_type();
        let mut metric = encoder.encode_descriptor("connections", "Configured servers by connection state.", None, kind)?;
        for (phase, name) in
            [(ServerPhase::Starting, "starting"), (ServerPhase::Connected, "connected"), (ServerPhase::Retrying, "retrying")]
        {
            let count = states.iter().filter(|state| state.phase == phase).count() as u64;
            metric.encode_family(&[("phase", name)])?.encode_gauge(&count)?;
        }
        let mut metric = encoder.encode_descriptor("server_up", "Whether the server is connected.", None, kind)?;
        for state in &states {
            let is_up = u64::from(state.phase == ServerPhase::Connected);
            metric.encode_family(&[("server", state.server.as_str())])?.encode_gauge(&is_up)?;
        }
        let mut metric = encoder.encode_descriptor("server_tools", "Tools in the server's last listing.", None, kind)?;
        for state in &states {
            metric.encode_family(&[("server", state.server.as_str())])?.encode_gauge(&(state.tools as u64))?;
        }

        let index = index.state();
        gauge(&mut encoder, "index_documents", "Tools in the index", index.documents as u64)?;
        gauge(&mut encoder, "index_embedded_documents", "Tools in the index that have vectors", index.embedded as u64)?;
        let is_searched = index.error.is_none() && index.qdrant.as_ref().is_none_or(|qdrant| qdrant.searched);
        gauge(&mut encoder, "index_up", "Whether searches use the index. If not, they use words only", u64::from(is_searched))?;
        if let Some(qdrant) = index.qdrant {
            gauge(&mut encoder, "qdrant_nodes", "Configured nodes of the Qdrant cluster", qdrant.nodes as u64)?;
            gauge(&mut encoder, "qdrant_nodes_answering", "Nodes of the Qdrant cluster that respond", qdrant.answering as u64)?;
        }
        gauge(&mut encoder, "embedder_up", "Whether messages can be embedded", u64::from(embedder.fault().is_none()))?;

        let failures = store.failures();
        let kind = ConstCounter::new(0_u64).metric_type();
        let mut metric = encoder.encode_descriptor("store_failures", "Failed operations of the store.", None, kind)?;
        for (operation, count) in [("read", failures.reads), ("write", failures.writes)] {
            metric.encode_family(&[("operation", operation)])?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        if let Some(space) = space() {
            gauge(&mut encoder, "data_dir_available_bytes", "Space that is left for the data folder", space.available_bytes)?;
            gauge(&mut encoder, "data_dir_size_bytes", "Size of the file system that contains the data folder", space.size_bytes)?;
        }
        counter(&mut encoder, "events_lost", "Selection events lost before they were stored", recorder.lost())?;
        let remembered = learning.messages() as u64;
        gauge(&mut encoder, "learning_messages", "Messages that learning compares, counted once per scope", remembered)?;
        counter(&mut encoder, "learning_uses_lost", "Learned uses lost before they were stored", learning.lost())?;
        counter(&mut encoder, "audit_entries_lost", "Audit log entries lost before they were stored", audit.lost())?;
        let kind = ConstGauge::new(0_u64).metric_type();
        let spools = [("audit", audit.spool()), ("events", recorder.spool())];
        let mut metric = encoder.encode_descriptor("spool_bytes", "Records on the disk that wait for the store.", None, kind)?;
        for (records, spool) in &spools {
            metric.encode_family(&[("records", *records)])?.encode_gauge(&spool.bytes)?;
        }
        let mut metric = encoder.encode_descriptor("spool_up", "Whether the disk takes records while the store is away.", None, kind)?;
        for (records, spool) in &spools {
            metric.encode_family(&[("records", *records)])?.encode_gauge(&u64::from(spool.error.is_none()))?;
        }
        gauge(&mut encoder, "leader", "Whether this replica does what must happen once", u64::from(leading.leads()))?;
        let LogState { lines_dropped, panics } = log();
        counter(&mut encoder, "log_lines_dropped", "Log lines dropped because of a slow consumer or a write error", lines_dropped)?;
        counter(&mut encoder, "panics", "Panics of parts of the service: bugs", panics)
    }
}

/// Reports the process under the names that all Prometheus clients use.
struct Process(ReadProcess);

impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Process")
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(state) = (self.0)() else { return Ok(()) };
        let (seconds, bytes) = (Unit::Seconds, Unit::Bytes);
        let cpu = ConstCounter::new(state.cpu_seconds);
        cpu.encode(encoder.encode_descriptor("process_cpu", "CPU time.", Some(&seconds), cpu.metric_type())?)?;
        let sizes = [
            ("process_resident_memory", "Resident memory.", state.resident_bytes),
            ("process_virtual_memory", "Virtual memory.", state.virtual_bytes),
        ];
        for (name, help, size) in sizes {
            let size = ConstGauge::new(size);
            size.encode(encoder.encode_descriptor(name, help, Some(&bytes), size.metric_type())?)?;
        }
        gauge(&mut encoder, "process_threads", "Threads", state.threads)?;
        gauge(&mut encoder, "process_open_fds", "Open file descriptors", state.open_files)?;
        if let Some(most) = state.most_files {
            gauge(&mut encoder, "process_max_fds", "Maximum number of open file descriptors", most)?;
        }
        let started = ConstGauge::new(state.started_seconds);
        started.encode(encoder.encode_descriptor("process_start_time", "Start time, since 1970.", Some(&seconds), started.metric_type())?)
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    // Integers in this format have 63 bits.
    let value = ConstGauge::new(value.min(i64::MAX.unsigned_abs()));
    value.encode(encoder.encode_descriptor(name, &format!("{help}."), None, value.metric_type())?)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let value = ConstCounter::new(value);
    value.encode(encoder.encode_descriptor(name, &format!("{help}."), None, value.metric_type())?)
}

#[cfg(test)]
mod tests {
    use super::{Form, written};

    const TEXT: &str = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{server=\"o\\\"ne\"} 1\n\
                        a_seconds_total{server=\"two\",outcome=\"success\"} 2\n# HELP b Which.\n# TYPE b info\nb_info{version=\"1\"} 1\n# EOF\n";

    #[test]
    fn the_older_form_has_other_names_and_no_end() {
        let plain = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total{server=\"o\\\"ne\"} 1\n\
                     a_seconds_total{server=\"two\",outcome=\"success\"} 2\n# HELP b_info Which.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n";
        assert_eq!(written(TEXT, Form::Plain, |_, _| true), plain);
        assert_eq!(written(TEXT, Form::OpenMetrics, |_, _| true), TEXT);
    }

    #[test]
    fn servers_that_are_hidden_have_no_series() {
        let shown = |server: &'static str| written(TEXT, Form::OpenMetrics, |name, _| name.as_str() == server);
        assert!(shown("o\"ne").contains("o\\\"ne") && !shown("o\"ne").contains("two"));
        assert!(shown("two").contains("two") && !shown("two").contains("ne\\\""));
        assert!(shown("none").contains("b_info") && !shown("none").contains("a_seconds_total{"));
    }

    #[test]
    fn tools_that_are_hidden_have_no_series() {
        let text = "calls_total{server=\"one\",tool=\"delete\",outcome=\"success\"} 1\ncalls_total{server=\"one\",tool=\"li\\\"st\"} 2\n";
        let shown = written(text, Form::Plain, |_, tool| tool == Some("li\"st"));
        assert_eq!(shown, "calls_total{server=\"one\",tool=\"li\\\"st\"} 2\n");
    }
}
