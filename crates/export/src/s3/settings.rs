//! The server and the key, by the variables of the environment that other tools know, too.

use std::fmt;

use super::sign::Credentials;
use crate::http::Url;

/// The region that is signed for if none is named; stores of one's own do not ask for it.
const REGION: &str = "us-east-1";

/// The server and the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    pub(crate) url: Url,
    pub(crate) region: String,
    pub(crate) credentials: Credentials,
}

/// The key is nobody else's.
impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Settings").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Settings {
    /// Those of this process's environment.
    ///
    /// # Errors
    /// Something is missing, or is not what it should be; the text names the variable.
    pub fn of_environment() -> Result<Settings, String> {
        Settings::of(|name| std::env::var(name).ok())
    }

    /// Those that these variables say.
    ///
    /// # Errors
    /// Those of [`Settings::of_environment`].
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let given = |names: &[&'static str]| {
            names.iter().find_map(|name| Some((*name, variable(name).filter(|value| !value.is_empty())?)))
        };
        let needed = |name: &'static str, what: &str| {
            given(&[name]).map(|(_, value)| value).ok_or_else(|| format!("{name} is not set: {what}"))
        };
        let Some((name, endpoint)) = given(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]) else {
            return Err("AWS_ENDPOINT_URL is not set: it names the server of the object store, such as \
                        http://localhost:9000"
                .to_owned());
        };
        if endpoint.starts_with("https://") {
            return Err(format!(
                "{name}: there is no TLS here: give an address as http://, of the store itself or of a \
                 gateway on this machine"
            ));
        }
        let url = endpoint.parse().map_err(|why| format!("{name}: {why}"))?;
        let region = given(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let region = region.map_or_else(|| REGION.to_owned(), |(_, region)| region);
        let key = "it is the first part of the key to the object store";
        let secret = "it is the second part of the key to the object store";
        let credentials = Credentials {
            access_key: needed("AWS_ACCESS_KEY_ID", key)?,
            secret_key: needed("AWS_SECRET_ACCESS_KEY", secret)?,
            session_token: given(&["AWS_SESSION_TOKEN"]).map(|(_, token)| token),
        };
        // These stand in heads of requests, of which each is a line.
        let in_heads = [
            ("AWS_REGION", Some(&region)),
            ("AWS_ACCESS_KEY_ID", Some(&credentials.access_key)),
            ("AWS_SESSION_TOKEN", credentials.session_token.as_ref()),
        ];
        let is_plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic());
        match in_heads.iter().find(|(_, text)| text.is_some_and(|text| !is_plain(text))) {
            Some((name, _)) => Err(format!("{name} has a space, or what is no visible character of ASCII")),
            None => Ok(Settings { url, region, credentials }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, &str); 3] = [
        ("AWS_ENDPOINT_URL", "http://a:9000"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];

    /// The settings with all that is needed, and these.
    fn with(more: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |name: &str| more.iter().chain(&ALL).find(|(other, _)| *other == name);
        Settings::of(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (name, _) in ALL {
            assert!(with(&[(name, "")]).is_err_and(|why| why.starts_with(&format!("{name} is not set: "))));
        }
        assert!(with(&[("AWS_ENDPOINT_URL", "https://a")]).is_err_and(|why| why.contains("no TLS")));
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "a:1"),
            ("AWS_ENDPOINT_URL_S3", "http://"),
            ("AWS_REGION", "a b"),
            ("AWS_ACCESS_KEY_ID", "a\nb"),
            ("AWS_SESSION_TOKEN", "a\r\nb"),
        ] {
            assert!(with(&[(name, value)]).is_err_and(|why| why.starts_with(name)), "{name}");
        }
    }

    #[test]
    fn the_closer_name_is_stronger() {
        let region = |more: &[(&str, &str)]| with(more).expect("all is there").region;
        assert_eq!(region(&[]), "us-east-1");
        assert_eq!(region(&[("AWS_DEFAULT_REGION", "a")]), "a");
        assert_eq!(region(&[("AWS_DEFAULT_REGION", "a"), ("AWS_REGION", "b")]), "b");
        let more =
            with(&[("AWS_ENDPOINT_URL_S3", "http://b"), ("AWS_SESSION_TOKEN", "t")]).expect("as it is");
        assert_eq!(
            (more.url.to_string(), more.credentials.session_token),
            ("http://b".into(), Some("t".into()))
        );
        assert!(!format!("{:?}", with(&[])).contains("secret"));
    }
}
