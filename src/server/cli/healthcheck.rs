//! `healthcheck`

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{Failure, Result, say};
use crate::server::config::Config;

const PATIENCE: Duration = Duration::from_secs(5);

pub async fn run(config: Config) -> Result<()> {
    let address = reachable(config.listen);
    let status = timeout(PATIENCE, ask(address)).await.map_err(|_| not_ready(address, "it does not answer"))?;
    match status.map_err(|error| not_ready(address, &error.to_string()))?.as_str() {
        "200" => {
            say("ready");
            Ok(())
        }
        other => Err(not_ready(address, &format!("it answers {other}"))),
    }
}

fn not_ready(address: SocketAddr, why: &str) -> Failure {
    Failure::new(format!("the desk at `{address}` is not ready: {why}"))
}

/// Where a server that listens on every address is reached from here.
pub fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The status code of `GET /readyz`.
async fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut reply = String::new();
    stream.take(4096).read_to_string(&mut reply).await?;
    Ok(reply.split(' ').nth(1).unwrap_or_default().to_owned())
}
