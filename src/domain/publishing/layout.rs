//! Base paths of documents, and names of tools in them.

use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::document::encoded;

/// Defines the paths of documents and tools. By default, the service publishes everything below `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The path under which a proxy publishes the service, such as `/tools`, or empty. Requests may omit it; URLs in responses
    /// always contain it.
    pub root_path: String,
    /// Prefix of the servers' paths, such as `/mcp-servers`, or empty.
    pub prefix: String,
    /// The server published at `/` itself, if there is only one.
    pub single: Option<ServerName>,
    pub naming: Naming,
}

/// How the document of one server names its tools. The document of all tools must distinguish servers, so it always uses
/// [`Naming::Flat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// `<server>__<tool>`, with the meta-tools.
    #[default]
    Flat,
    /// mcpo's names, `tool_<tool>_post`, without meta-tools.
    Mcpo,
}

impl Layout {
    /// The base path of a server's document.
    pub fn server(&self, server: &ServerName) -> String {
        if self.single.as_ref() == Some(server) {
            return self.root_path.clone();
        }
        format!("{}{}/{}", self.root_path, self.prefix, encoded(server.as_str()))
    }

    /// The same layout below a further path.
    pub fn below(&self, path: &str) -> Self {
        Self { root_path: format!("{}{path}", self.root_path), ..self.clone() }
    }

    /// Removes [`Layout::root_path`] from the start of a path; `None` if the path does not start with it.
    pub fn without_root<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.root_path.is_empty() {
            return None;
        }
        path.strip_prefix(&self.root_path).filter(|rest| rest.starts_with('/'))
    }

    /// Whether the path belongs to a document or to its documentation page.
    pub fn is_document(&self, path: &str) -> bool {
        let is_page = |path: &str| matches!(path, "openapi.json" | "docs") || path.starts_with("docs/");
        let Some(path) = path.strip_prefix('/') else { return false };
        if is_page(path) {
            return true;
        }
        let prefix = self.prefix.strip_prefix('/').map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let below_server = path.strip_prefix(&prefix).and_then(|path| path.split_once('/'));
        self.single.is_none() && below_server.is_some_and(|(server, rest)| !server.is_empty() && is_page(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Naming};

    #[test]
    fn documents_differ_from_tools() {
        let layout = Layout { prefix: "/pre".into(), naming: Naming::Mcpo, ..Layout::default() };
        for path in ["/openapi.json", "/docs", "/docs/x.css", "/pre/a/openapi.json", "/pre/a/docs", "/pre/a/docs/"] {
            assert!(layout.is_document(path), "{path}");
        }
        for path in ["/", "/a/openapi.json", "/pre/openapi.json", "/pre/a/b/openapi.json", "/pre/a/docsx", "/v1/filter", "openapi.json"] {
            assert!(!layout.is_document(path), "{path}");
        }
    }

    #[test]
    fn the_root_path_is_optional_in_requests() {
        let layout = Layout { root_path: "/r".into(), ..Layout::default() };
        assert_eq!(layout.without_root("/r/a"), Some("/a"));
        assert_eq!(layout.without_root("/rest/a"), None);
        assert_eq!(layout.without_root("/a"), None);
        assert_eq!(Layout::default().without_root("/a"), None);
        assert_eq!(layout.server(&"a b".into()), "/r/a%20b");
    }
}
