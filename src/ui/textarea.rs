//! The one place that writes `<textarea>`.

use leptos::prelude::*;

/// A field of many lines. Rendered text inside this element is not escaped by the framework, so it is escaped here.
#[component]
pub fn TextArea(
    id: &'static str,
    name: &'static str,
    /// What stands in it; from whomever.
    #[prop(optional, into)]
    value: String,
    #[prop(default = 3)] rows: u32,
    #[prop(default = 2000)] maxlength: u32,
    /// More classes than `in`.
    #[prop(optional)]
    class: &'static str,
    /// The id of what explains it.
    #[prop(optional_no_strip)]
    described_by: Option<&'static str>,
    /// `true` when it was not taken.
    #[prop(optional_no_strip)]
    invalid: Option<&'static str>,
) -> impl IntoView {
    view! {
        <textarea
            id=id
            name=name
            class=format!("in {class}").trim_end().to_owned()
            rows=rows.to_string()
            maxlength=maxlength.to_string()
            spellcheck="false"
            aria-describedby=described_by
            aria-invalid=invalid
        >
            {escaped(&value)}
        </textarea>
    }
}

/// A line break right after the tag is dropped by the parser, so one is put before the text.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_the_field() {
        let html = view! { <TextArea id="a" name="a" value="\n</textarea><script>&amp;" /> }.to_html();
        assert!(html.contains(">\n\n&lt;/textarea&gt;&lt;script&gt;&amp;amp;</textarea>"), "{html}");
    }
}
