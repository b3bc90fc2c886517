//! Who may call, and the log and counts of who did.
//!
//! A web page anywhere can make a browser on this machine send requests here. Three things tell them from programs: the
//! `Origin` header, which browsers set and pages cannot; the `Host` header, which names the attacker when its name was made to
//! point here (DNS rebinding); and the key.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::{Authority, Uri};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::error::ApiError;
use crate::options::Options;

/// Routes that need no key: what a load balancer asks, and a page without secrets.
const OPEN: [&str; 2] = ["/health", "/"];

/// Lets a request through, or refuses it; logs and counts it.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let (origin, may_call) = match check(&app.options, &request) {
        // A page that may call has to see that its key is wrong.
        Ok(origin) => (origin.clone(), check_key(&app.options, &route, &request, origin.is_some())),
        Err(error) => (None, Err(error)),
    };
    let mut response = match may_call {
        Err(error) => {
            tracing::warn!(%method, route, status = error.http_status().as_u16(), %error, "refused");
            error.into_response()
        }
        Ok(()) if method == Method::OPTIONS && origin.is_some() => preflight(request.headers()),
        Ok(()) => next.run(request).await,
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    let status = response.status().as_u16();
    app.metrics.answered(&route, status);
    let milliseconds = started.elapsed().as_millis() as u64;
    tracing::info!(%method, route, status, milliseconds, "answered");
    response
}

/// Checks where a request comes from; the origin that the browser has to be told of, if a page sent it.
fn check(options: &Options, request: &Request) -> Result<Option<HeaderValue>, ApiError> {
    let headers = request.headers();
    let host = headers.get(header::HOST);
    if options.api_key.is_none() {
        check_host(options, host)?;
    }
    let origin = headers.get(header::ORIGIN);
    if let Some(origin) = origin {
        check_origin(options, origin, host)?;
    }
    Ok(origin.cloned())
}

fn check_host(options: &Options, host: Option<&HeaderValue>) -> Result<(), ApiError> {
    let Some(host) = host else { return Ok(()) };
    let name = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let is_known = |name: &Authority| {
        let name = name.host();
        is_local_name(name)
            || address(name).is_some()
            || options.allow_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
    };
    if name.as_ref().is_some_and(is_known) {
        return Ok(());
    }
    let message = format!(
        "the request is for host {host:?}, which is no address, not localhost, and not one of --allow-host"
    );
    Err(ApiError::status(StatusCode::FORBIDDEN, "host_not_allowed", message))
}

fn check_origin(options: &Options, origin: &HeaderValue, host: Option<&HeaderValue>) -> Result<(), ApiError> {
    let text = origin.to_str().unwrap_or_default();
    let uri: Option<Uri> = text.parse().ok();
    let authority = uri.as_ref().and_then(Uri::authority);
    let is_same = |of: &Authority| host.is_some_and(|host| host.as_bytes() == of.as_str().as_bytes());
    let is_local = |of: &Authority| {
        is_local_name(of.host()) || address(of.host()).is_some_and(|address| address.is_loopback())
    };
    let is_allowed = options.allow_origins.iter().any(|allowed| allowed == "*" || allowed == text);
    if is_allowed || authority.is_some_and(|of| is_same(of) || is_local(of)) {
        return Ok(());
    }
    let message = format!("web pages of {text:?} may not call this server (--allow-origin)");
    Err(ApiError::status(StatusCode::FORBIDDEN, "origin_not_allowed", message))
}

fn is_local_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Compares digests, in a time that says nothing about the key, not even its length. Browsers send no key with a preflight.
fn check_key(options: &Options, route: &str, request: &Request, is_of_page: bool) -> Result<(), ApiError> {
    let is_preflight = request.method() == Method::OPTIONS && is_of_page;
    let Some(key) = options.api_key.as_ref().filter(|_| !OPEN.contains(&route) && !is_preflight) else {
        return Ok(());
    };
    let headers = request.headers();
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_bearer = given.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    let given = if is_bearer { given.get(7..).unwrap_or_default() } else { given };
    let (given, right) = (Sha256::digest(given.trim_ascii()), Sha256::digest(key.as_bytes()));
    if bool::from(given.as_slice().ct_eq(right.as_slice())) && is_bearer {
        return Ok(());
    }
    let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY`";
    Err(ApiError::status(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
}

fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    let wanted = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let usual = HeaderValue::from_static("authorization, content-type");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(usual));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}
