//! `toolsieve bench embed`: measures the embedder's speed on this machine, for the comparison in `benches/`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::adapters::embed::builtin::{Encoder, Kernel, time_texts};
use crate::cli::{Failure, Outcome};

#[derive(Args)]
pub(super) struct Embed {
    /// File with one text per line
    #[arg(long, value_name = "FILE")]
    texts: PathBuf,
    /// Embed each text this many times
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Instruction set to use [default: the best one that the processor supports]
    #[arg(long, value_enum)]
    kernel: Option<KernelArg>,
    /// Print all measured times as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum KernelArg {
    Avx512Vnni,
    Avx2,
    #[value(name = "sse4.1")]
    Sse41,
    Neon,
    Portable,
}

impl Embed {
    pub(super) fn run(self) -> Outcome {
        let Self { texts, rounds, kernel, json } = self;
        let content = fs::read_to_string(&texts).map_err(|error| Failure::invalid(format!("error: {}: {error}", texts.display())))?;
        let lines: Vec<&str> = content.lines().filter(|line| !line.trim().is_empty()).collect();
        let mut encoder = Encoder::built_in().map_err(|error| Failure::failed(format!("error: {error}")))?;
        if let Some(kernel) = kernel {
            let kernel = match kernel {
                KernelArg::Avx512Vnni => Kernel::Vnni,
                KernelArg::Avx2 => Kernel::Avx2,
                KernelArg::Sse41 => Kernel::Sse41,
                KernelArg::Neon => Kernel::Neon,
                KernelArg::Portable => Kernel::Portable,
            };
            encoder = encoder.with_kernel(kernel).map_err(|error| Failure::failed(format!("error: {error}")))?;
        }
        let times = time_texts(&encoder, &lines, rounds);
        if json {
            let json = serde_json::to_string(&times).map_err(|error| Failure::failed(format!("error: {error}")))?;
            println!("{json}");
            return Ok(());
        }
        println!("{} ({})", encoder.model_id(), encoder.kernel().name());
        for (place, tokens) in times.tokens.iter().enumerate() {
            let mut sorted: Vec<f64> = times.milliseconds.iter().filter_map(|round| round.get(place).copied()).collect();
            sorted.sort_by(f64::total_cmp);
            if let (Some(least), Some(middle)) = (sorted.first(), sorted.get(sorted.len() / 2)) {
                println!("{tokens:>4} tokens: p50 {middle:.3} ms, least {least:.3} ms");
            }
        }
        Ok(())
    }
}
