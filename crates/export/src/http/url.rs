//! Addresses of servers: `http://HOST[:PORT][/PATH]`.

use std::fmt;
use std::str::FromStr;

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The host and the port, as the request's `Host` names them.
    pub(crate) authority: String,
    /// The host alone: a name, or an address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What comes before each path; without a slash at its end.
    pub(crate) base: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                return Err("there is no TLS here: give the address of a collector on this machine as \
                            http://, and let that send on"
                    .to_owned());
            }
            _ => return Err("expected `http://HOST:PORT`, such as `http://localhost:4318`".to_owned()),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\"<>\\^`{|}".contains(&byte);
        if !rest.bytes().all(is_plain) {
            return Err(
                "an address has visible characters of ASCII, and here no user, query or fragment".to_owned()
            );
        }
        // An address of IPv6 stands in brackets.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("`{port}` is no port"))?)
            }
            _ => (authority, 80),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() || (bare.contains(':') && bare == host) {
            return Err("a host is missing; an address of IPv6 stands in brackets".to_owned());
        }
        Ok(Url {
            authority: authority.to_owned(),
            host: bare.to_owned(),
            port,
            base: path.trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}{}", self.authority, self.base)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_of_http_only() {
        let read = |text: &str| text.parse::<Url>().map(|url| (url.host.clone(), url.port, url.base.clone()));
        assert_eq!(read("http://a:4318"), Ok(("a".into(), 4318, "".into())));
        assert_eq!(read("http://a/"), Ok(("a".into(), 80, "".into())));
        assert_eq!(read("http://[::1]:1/b/c/"), Ok(("::1".into(), 1, "/b/c".into())));
        assert!(read("https://a").is_err_and(|why| why.contains("TLS")));
        for bad in [
            "",
            "a:1",
            "http://",
            "http://:1",
            "http://a:x",
            "http://a:70000",
            "http://::1",
            "http://u@a",
            "http://a/\r\n",
            "http://a/?q",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_means_the_same(text in "http://[a-z\\[\\]:0-9/.?@ ]{0,12}") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert!(!url.to_string().contains([' ', '\r', '\n']));
                prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
            }
        }
    }
}
