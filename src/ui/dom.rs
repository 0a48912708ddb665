//! The few things islands do to the page they wake up in.

use leptos::{
    prelude::document,
    wasm_bindgen::{JsCast, JsValue, closure::Closure, convert::FromWasmAbi},
    web_sys::{Element, Event, EventTarget, Node, NodeList},
};

pub fn find(selector: &str) -> Option<Element> {
    document().query_selector(selector).ok().flatten()
}

/// In document order.
pub fn all(selector: &str) -> Vec<Element> {
    list(document().query_selector_all(selector))
}

pub fn find_in(element: &Element, selector: &str) -> Option<Element> {
    element.query_selector(selector).ok().flatten()
}

/// In document order.
pub fn all_in(element: &Element, selector: &str) -> Vec<Element> {
    list(element.query_selector_all(selector))
}

fn list(found: Result<NodeList, JsValue>) -> Vec<Element> {
    let Ok(nodes) = found else { return Vec::new() };
    (0..nodes.length()).filter_map(|i| nodes.item(i)?.dyn_into().ok()).collect()
}

/// Calls `handle` for as long as the page lives.
pub fn on<E: FromWasmAbi + 'static>(target: &EventTarget, event: &str, handle: impl FnMut(E) + 'static) {
    let handle = Closure::<dyn FnMut(E)>::new(handle).into_js_value();
    // Captured, so that events that do not bubble are heard too.
    _ = target.add_event_listener_with_callback_and_bool(event, handle.unchecked_ref(), true);
}

/// Tells the other islands of the page.
pub fn announce(event: &str) {
    if let Ok(event) = Event::new(event) {
        _ = document().dispatch_event(&event);
    }
}

/// A notice with a heading of the level `level` and a sentence, and at most one way on.
pub fn notice(
    level: &str,
    meaning: &str,
    heading: &str,
    sentence: &str,
    way_on: Option<(&str, &str)>,
) -> Option<Element> {
    let words = element("div", "", &[text(level, "", heading)?, text("p", "", sentence)?])?;
    let mut parts = vec![words];
    if let Some((label, address)) = way_on {
        let link = text("a", "btn btn-small", label)?;
        link.set_attribute("href", address).ok()?;
        parts.push(link);
    }
    element("div", &format!("notice notice-{meaning}"), &parts)
}

pub fn text(name: &str, class: &str, content: &str) -> Option<Element> {
    let made = element(name, class, &[])?;
    made.set_text_content(Some(content));
    Some(made)
}

pub fn element(name: &str, class: &str, children: &[Element]) -> Option<Element> {
    let made = document().create_element(name).ok()?;
    if !class.is_empty() {
        made.set_class_name(class);
    }
    for child in children {
        made.append_child(child).ok()?;
    }
    Some(made)
}

/// The text a reader sees in `element`, with each character that is shown by its number (`data-cp`) put back.
/// `None` if a number is none.
pub fn seen(element: &Element) -> Option<String> {
    let mut out = String::new();
    read(element, &mut out)?;
    Some(out)
}

fn read(parent: &Node, out: &mut String) -> Option<()> {
    let children = parent.child_nodes();
    for child in (0..children.length()).filter_map(|i| children.item(i)) {
        match child.dyn_ref::<Element>() {
            Some(chip) if chip.has_attribute("data-cp") => {
                let shown = chip.text_content()?;
                let number = u32::from_str_radix(shown.trim().strip_prefix("U+")?, 16).ok()?;
                out.push(char::from_u32(number)?);
            }
            Some(element) => read(element, out)?,
            None if child.node_type() == Node::TEXT_NODE => out.push_str(&child.node_value()?),
            None => {}
        }
    }
    Some(())
}

/// Switches a button or a field off.
pub fn disable(control: &Element) {
    _ = control.set_attribute("disabled", "");
}

pub fn enable(control: &Element) {
    _ = control.remove_attribute("disabled");
}
