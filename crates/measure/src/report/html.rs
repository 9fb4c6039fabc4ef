//! Writes markup whose tags are closed and whose text is escaped, whatever is put in.

/// `text` with the five characters escaped that mean something in HTML and XML, in content and in attributes.
/// Control characters that XML does not allow become U+FFFD.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Markup under construction. Elements are closed in the order in which they were opened.
#[derive(Debug, Default)]
pub(super) struct Markup {
    out: String,
    open: Vec<&'static str>,
}

impl Markup {
    /// Opens an element.
    pub(super) fn open(&mut self, name: &'static str, attributes: &[(&str, &str)]) -> &mut Self {
        self.tag(name, attributes, ">");
        self.open.push(name);
        self
    }

    /// Closes the element that was opened last.
    pub(super) fn close(&mut self) -> &mut Self {
        if let Some(name) = self.open.pop() {
            self.out.push_str("</");
            self.out.push_str(name);
            self.out.push('>');
        }
        self
    }

    /// An element without content.
    pub(super) fn empty(&mut self, name: &'static str, attributes: &[(&str, &str)]) -> &mut Self {
        self.tag(name, attributes, "/>");
        self
    }

    /// An element with text.
    pub(super) fn element(&mut self, name: &'static str, attributes: &[(&str, &str)], text: &str) -> &mut Self {
        self.open(name, attributes).text(text).close()
    }

    /// Text.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.out.push_str(&escape(text));
        self
    }

    /// Markup that is finished already.
    pub(super) fn raw(&mut self, markup: &str) -> &mut Self {
        self.out.push_str(markup);
        self
    }

    /// The whole, with everything closed that is still open.
    pub(super) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, &str)], end: &str) {
        self.out.push('<');
        self.out.push_str(name);
        for (key, value) in attributes {
            self.out.push(' ');
            self.out.push_str(key);
            self.out.push_str("=\"");
            self.out.push_str(&escape(value));
            self.out.push('"');
        }
        self.out.push_str(end);
    }
}

/// Reads markup as a strict reader would: every tag closed in its turn, attributes quoted, no stray `<` or `&`.
#[cfg(test)]
pub(super) fn check(markup: &str) -> Result<(), String> {
    let mut rest = markup;
    let mut open: Vec<String> = Vec::new();
    while let Some(at) = rest.find(['<', '&', '>']) {
        let here: String = rest[at..].chars().take(60).collect();
        if rest[at..].starts_with('>') {
            return Err(format!("stray > at {here:?}"));
        }
        if rest[at..].starts_with('&') {
            let end = rest[at..].find(';').ok_or(format!("open reference at {here:?}"))?;
            let name = &rest[at + 1..at + end];
            if !["amp", "lt", "gt", "quot", "#39"].contains(&name) {
                return Err(format!("reference at {here:?}"));
            }
            rest = &rest[at + end + 1..];
            continue;
        }
        let end = rest[at..].find('>').ok_or(format!("open tag at {here:?}"))?;
        let tag = &rest[at + 1..at + end];
        rest = &rest[at + end + 1..];
        if tag.starts_with('!') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("{name} closed out of turn at {here:?}"));
            }
            continue;
        }
        if tag.matches('"').count() % 2 != 0 || tag.contains('<') {
            return Err(format!("malformed tag at {here:?}"));
        }
        if !tag.ends_with('/') {
            let name = tag.split_whitespace().next().unwrap_or("").to_owned();
            if name == "style" {
                let close = rest.find("</style>").ok_or("open style")?;
                rest = &rest[close..];
            }
            open.push(name);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("left open: {open:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes() {
        assert_eq!(escape("<a b=\"c\" d='e'>&"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
        assert_eq!(escape("a\u{0}\u{1b}b\n"), "a\u{fffd}\u{fffd}b\n");
    }

    #[test]
    fn the_checker_finds_what_is_wrong() {
        for wrong in ["<a>", "<a></b>", "<a><b></a></b>", "a & b", "<a x=\"1>", "a > b", "</a>"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        assert_eq!(check("<!DOCTYPE html><a x=\"1\"><b/>&amp;</a>"), Ok(()));
    }

    proptest! {
        #[test]
        fn whatever_is_put_in_stays_text(text in "\\PC{0,40}", value in "\\PC{0,40}") {
            let mut m = Markup::default();
            m.open("p", &[("title", &value)]).text(&text).empty("br", &[("x", &value)]);
            prop_assert_eq!(check(&m.finish()), Ok(()));
        }
    }
}
