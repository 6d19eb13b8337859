//! Passes `BUILD_VERSION` to the compiler: the version, with the commit and its date if they are known.
//!
//! They come from the first of these sources: the variables `SOURCE_COMMIT` and `SOURCE_DATE_EPOCH`, the Git checkout, and
//! `.commit`, into which `git archive` writes them. The time of the build is deliberately absent, so the same sources
//! always give the same program. Builds for debugging don't ask Git, because each commit would make them compile everything again.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A commit, as the hash and the time in seconds since 1970. Both may be unknown.
#[derive(Default)]
struct Commit {
    hash: Option<String>,
    seconds: Option<i64>,
}

fn main() {
    let mut commit = named().or_else(checked_out).or_else(archived).unwrap_or_default();
    if let Some(seconds) = variable("SOURCE_DATE_EPOCH").and_then(|text| text.parse().ok()) {
        commit.seconds = Some(seconds);
    }
    let hash = commit.hash.map(|hash| hash.chars().take(9).collect::<String>());
    let known: Vec<String> = [hash, commit.seconds.map(date)].into_iter().flatten().collect();
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let details = if known.is_empty() { String::new() } else { format!(" ({})", known.join(" ")) };
    println!("cargo::rustc-env=BUILD_VERSION={version}{details}");
}

fn variable(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().filter(|text| !text.is_empty())
}

fn named() -> Option<Commit> {
    Some(Commit { hash: Some(variable("SOURCE_COMMIT")?), seconds: None })
}

/// The commit that Git has checked out in this folder. Without Git, it is unknown.
fn checked_out() -> Option<Commit> {
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return None;
    }
    // The sources may be unpacked inside the checkout of another project.
    if !git(&["rev-parse", "--show-prefix"])?.is_empty() {
        return None;
    }
    // `HEAD` changes with the branch, and its log with every commit.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    parse(&git(&["-c", "log.showSignature=false", "log", "-1", "--format=%H %ct"])?)
}

fn archived() -> Option<Commit> {
    println!("cargo::rerun-if-changed=.commit");
    parse(&fs::read_to_string(".commit").ok()?)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn parse(text: &str) -> Option<Commit> {
    let (hash, seconds) = text.trim().split_once(' ')?;
    let is_hash = hash.chars().all(|digit| digit.is_ascii_hexdigit());
    is_hash.then(|| Commit { hash: Some(hash.to_owned()), seconds: seconds.parse().ok() })
}

/// The date in UTC, by Howard Hinnant's algorithm `civil_from_days`.
fn date(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
