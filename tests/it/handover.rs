//! A new version takes over from the old one on a socket that somebody else keeps open, as systemd does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::task::{JoinSet, block_in_place};
use tokio_util::sync::CancellationToken;

use crate::harness::process::{Service, command, ended, write_config};
use crate::harness::stdio;
use crate::harness::wait::{LONG, eventually, when};

/// 50 requests a second.
const PERIOD: Duration = Duration::from_millis(20);
/// How many requests each of the two processes must answer.
const ENOUGH: usize = 100;

fn socket(address: IpAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(address, 0)).unwrap();
    socket.listen(2048).unwrap().into_std().unwrap()
}

/// The service's command with this descriptor as its number 3, as systemd passes it, and as number 4 too if there shall be two. `exec`
/// keeps the shell's process id.
fn activated(folder: &Path, socket: OwnedFd, count: usize, change: impl FnOnce(&mut Command)) -> Command {
    let second = if count > 1 { "4<&0" } else { "" };
    let script = format!(r#"export LISTEN_PID=$$; exec "$0" "$@" 3<&0 {second} </dev/null"#);
    write_config(folder, &json!({"box": stdio(&[])}));
    let mut service = command(folder);
    // Another address than that of the socket.
    service.args(["--port", "0"]).env("LISTEN_FDS", count.to_string());
    change(&mut service);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(service.get_program()).args(service.get_args()).stdin(Stdio::from(socket));
    shell.env_clear().envs(service.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

fn start(folder: &Path, socket: &TcpListener, change: impl FnOnce(&mut Command)) -> Service {
    Service::run(folder, activated(folder, socket.try_clone().unwrap().into(), 1, change))
}

/// A client that opens a connection for each request.
fn client() -> Client {
    Client::builder().pool_max_idle_per_host(0).timeout(LONG).build().unwrap()
}

/// The status of a call, a selection or a document, in turn; or why there is none.
async fn ask(client: Client, url: String, number: usize) -> Result<StatusCode, String> {
    let request = match number % 3 {
        0 => client.post(format!("{url}/box/echo")).json(&json!({"text": number.to_string()})),
        1 => {
            let message = json!({"messages": [{"role": "user", "content": "echo these words"}], "chat_id": number.to_string()});
            client.post(format!("{url}/v1/filter")).json(&message)
        }
        _ => client.get(format!("{url}/openapi.json")),
    };
    let response = request.send().await.map_err(|error| format!("{error:?}"))?;
    let status = response.status();
    let body = response.text().await.map_err(|error| format!("{error:?}"))?;
    if status == StatusCode::OK { Ok(status) } else { Err(format!("{status}: {body}")) }
}

async fn readiness(url: &str) -> (StatusCode, Value) {
    let response = client().get(format!("{url}/readyz")).send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

async fn listed(url: &str) {
    eventually("the server has listed its tools", async || {
        let (_, state) = readiness(url).await;
        when(state, |state| state["servers"][0]["phase"] == "connected" && state["tools"] != 0)
    })
    .await;
}

/// The issue's figure: 50 requests a second, half of them on new connections and half on one that is kept alive, and none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_takes_over_without_losing_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let listener = socket(Ipv4Addr::LOCALHOST.into());
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut first = block_in_place(|| start(folder.path(), &listener, |_| {}));
    assert_eq!(first.url, url, "not the address in the settings");
    listed(&url).await;

    let (answered, enough) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let mut load = JoinSet::new();
    let (counter, over, to) = (Arc::clone(&answered), enough.clone(), url.clone());
    load.spawn(async move {
        let (mut ticks, mut requests, mut failed) = (tokio::time::interval(2 * PERIOD), JoinSet::new(), Vec::new());
        for number in 0.. {
            tokio::select! {
                _ = ticks.tick() => {}
                () = over.cancelled() => break,
            }
            let (counter, request) = (Arc::clone(&counter), ask(client(), to.clone(), number));
            requests.spawn(async move {
                request.await.inspect(|_| {
                    counter.fetch_add(1, Ordering::Relaxed);
                })
            });
        }
        while let Some(request) = requests.join_next().await {
            failed.extend(request.unwrap().err());
        }
        failed
    });
    let (counter, over, to) = (Arc::clone(&answered), enough.clone(), url.clone());
    load.spawn(async move {
        let (kept, mut ticks, mut failed) =
            (Client::builder().timeout(LONG).build().unwrap(), tokio::time::interval(2 * PERIOD), Vec::new());
        for number in 0.. {
            tokio::select! {
                _ = ticks.tick() => {}
                () = over.cancelled() => break,
            }
            match ask(kept.clone(), to.clone(), number).await {
                Ok(_) => {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => failed.push(error),
            }
        }
        failed
    });
    let more = async |than: usize| {
        eventually("enough requests are answered", async || when(answered.load(Ordering::Relaxed), |count| *count >= than + ENOUGH)).await
    };
    more(0).await;

    first.signal(Signal::SIGTERM);
    let code = block_in_place(|| ended(&mut first.process)).code();
    assert_eq!(code, Some(0), "{}", first.log());
    // Nobody accepts this one until the next process listens.
    let waiting = tokio::spawn(ask(client(), url.clone(), 0));
    let before = answered.load(Ordering::Relaxed);
    let mut second = block_in_place(|| start(folder.path(), &listener, |_| {}));
    assert_eq!(waiting.await.unwrap(), Ok(StatusCode::OK));
    more(before).await;
    enough.cancel();
    let mut failed = Vec::new();
    while let Some(more) = load.join_next().await {
        failed.extend(more.unwrap());
    }
    assert_eq!(failed, Vec::<String>::new(), "{}\n{}", first.log(), second.log());
    assert!(second.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn during_the_delay_load_balancers_see_it_and_requests_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(folder.path(), &json!({"box": stdio(&[])}), |command| {
        command.env("TOOLSIEVE_HTTP__SHUTDOWN_DELAY_SECONDS", "600");
    });
    let url = service.url.clone();
    listed(&url).await;
    let kept = Client::new();
    let before = kept.get(format!("{url}/openapi.json")).send().await.unwrap();
    assert!(!before.headers().contains_key("connection"));
    // Answered as soon as somebody sleeps.
    let running = tokio::spawn(client().post(format!("{url}/box/wait_sleeping")).json(&json!({})).send());

    service.signal(Signal::SIGTERM);
    eventually("it is not ready any more", async || when(readiness(&url).await.0, |status| *status == StatusCode::SERVICE_UNAVAILABLE))
        .await;
    assert_eq!(readiness(&url).await.1["ready"], false);
    let answer = kept.get(format!("{url}/openapi.json")).send().await.unwrap();
    assert_eq!((answer.status(), &answer.headers()["connection"]), (StatusCode::OK, &"close".parse().unwrap()));
    let sleeping = tokio::spawn(client().post(format!("{url}/box/sleep")).json(&json!({})).send());
    assert_eq!(running.await.unwrap().unwrap().status(), StatusCode::OK);
    sleeping.abort();
    // Whoever asks twice is in a hurry.
    assert!(block_in_place(|| service.stop()).success());
}

fn refused(folder: &Path, socket: OwnedFd, count: usize, change: impl FnOnce(&mut Command)) -> Output {
    let mut command = activated(folder, socket, count, change);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    ended(&mut process);
    process.wait_with_output().unwrap()
}

/// The settings say loopback, and the socket says everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_passed_socket_is_not_open_to_others_without_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let everywhere = socket(Ipv4Addr::UNSPECIFIED.into());
    let output = refused(folder.path(), everywhere.try_clone().unwrap().into(), 1, |_| {});
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("TOOLSIEVE_API_KEY") && text.contains(&everywhere.local_addr().unwrap().to_string()), "{text}");
    let mut service = block_in_place(|| {
        start(folder.path(), &everywhere, |command| {
            command.env("TOOLSIEVE_API_KEY", "a-key-for-this-test");
        })
    });
    assert!(block_in_place(|| service.stop()).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_listened_on_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    for (socket, count, words) in [
        (socket(Ipv4Addr::LOCALHOST.into()).into(), 2, "2 sockets"),
        (OwnedFd::from(file), 1, "ListenStream="),
        (OwnedFd::from(UnixDatagram::unbound().unwrap()), 1, "ListenStream="),
    ] {
        let output = refused(folder.path(), socket, count, |_| {});
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manager_learns_when_the_service_listens_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify").to_str().unwrap().to_owned();
    // The second socket has no path.
    let name = format!("toolsieve-{}", std::process::id());
    let abstract_socket = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    for (address, manager) in
        [(path.clone(), UnixDatagram::bind(&path).unwrap()), (format!("@{name}"), UnixDatagram::bind_addr(&abstract_socket).unwrap())]
    {
        manager.set_read_timeout(Some(LONG)).unwrap();
        let next = || {
            let mut message = [0; 64];
            let length = manager.recv(&mut message).unwrap();
            String::from_utf8_lossy(&message[..length]).trim().to_owned()
        };
        let home = tempfile::tempdir().unwrap();
        let service = Service::start(home.path(), &json!({"box": stdio(&[])}), |command| {
            command.env("NOTIFY_SOCKET", &address);
        });
        assert_eq!(block_in_place(next), "READY=1", "{address}");
        service.signal(Signal::SIGTERM);
        assert_eq!(block_in_place(next), "STOPPING=1", "{address}");
    }
}
