//! An MCP server over standard streams. See `behaviour.rs`; besides: `refuse-start` says why on standard error and ends, `spy` tries to
//! read and write files, `die-once=FILE` ends on its first start, `ignore-end` ignores the end of its input and `SIGTERM`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test server may panic")]
#![allow(clippy::pedantic, unreachable_pub, dead_code, reason = "shared with the other test server")]

mod behaviour;

use std::io::{BufRead as _, Write as _};
use std::sync::{Arc, Mutex};

use behaviour::{Behaviour, Client, Options, Wire};

struct Stdout(Mutex<std::io::Stdout>);

impl Wire for Stdout {
    fn send(&self, text: &str) {
        let mut stdout = self.0.lock().unwrap();
        // One write: a reader must not see a line in two parts unless it is long.
        let _ = stdout.write_all(format!("{text}\n").as_bytes()).and_then(|()| stdout.flush());
    }
}

fn main() {
    let options = Options::from_command_line();
    if options.has("refuse-start") {
        eprintln!("\u{1b}[31mfatal:\u{1b}[0m no \u{202e}key {}", std::env::var("TEST_SECRET").unwrap_or_default());
        std::process::exit(4);
    }
    if let Some(marker) = options.value("die-once")
        && std::fs::File::create_new(marker).is_ok()
    {
        std::process::exit(5);
    }
    let ignores_end = options.has("ignore-end");
    let behaviour = Behaviour::new(options);
    let client: Client = Arc::new(Stdout(Mutex::new(std::io::stdout())));
    behaviour.listeners.lock().unwrap().push(Arc::clone(&client));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        behaviour.receive(&line, Arc::clone(&client));
    }
    if ignores_end {
        loop {
            std::thread::park();
        }
    }
}
