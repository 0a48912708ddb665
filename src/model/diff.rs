//! What changed between two documents, field by field, as a reviewer thinks of it.
//!
//! Objects are compared member by member. An array is one field, because indices shift: comparing by index would report
//! an inserted element as a change of all that follow. Where a key is declared for it ([`ArrayKeys`]), an array is a
//! list of things with names, and its elements are compared by name.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{json::push_token, resource::FieldChange};

/// Which member names the elements of which array: pointer of the array → member. A token `*` of the pointer stands for
/// any one token, so that `/groups/*/members` reaches into every element of `/groups`.
///
/// Below such an array, a JSON pointer (RFC 6901) has the element's name where it would have an index:
/// `/routes/payments/severity`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArrayKeys(BTreeMap<String, String>);

impl ArrayKeys {
    pub fn new(keys: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// The member that names the elements of the array at `pointer`.
    fn of(&self, pointer: &str) -> Option<&str> {
        let matches = |pattern: &str| {
            let (mut pattern, mut tokens) = (pattern.split('/'), pointer.split('/'));
            loop {
                match (pattern.next(), tokens.next()) {
                    (None, None) => return true,
                    (Some(one), Some(token)) if one == "*" || one == token => {}
                    _ => return false,
                }
            }
        };
        self.0.iter().find(|(pattern, _)| matches(pattern)).map(|(_, member)| member.as_str())
    }
}

/// One field that differs. A side that has no such field has no value; JSON null is a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldDiff {
    /// RFC 6901, with names in place of indices where an array has a key.
    pub pointer: String,
    pub change: FieldChange,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub from: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub to: Option<Value>,
}

/// A member that is there has a value, be it null.
pub fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The fields in which `old` and `new` differ, in the order of the document; none where a document does not exist. No
/// pointer is above or below another one. An array whose elements changed places is one field, key or no key.
pub fn diff(old: Option<&Value>, new: Option<&Value>, keys: &ArrayKeys) -> Vec<FieldDiff> {
    let mut found = Vec::new();
    compare(old, new, &mut String::new(), keys, &mut found);
    found
}

fn compare(
    old: Option<&Value>,
    new: Option<&Value>,
    pointer: &mut String,
    keys: &ArrayKeys,
    found: &mut Vec<FieldDiff>,
) {
    let member = keys.of(pointer);
    let mut below = |name: &str, old: Option<&Value>, new: Option<&Value>| {
        let here = pointer.len();
        push_token(pointer, name);
        compare(old, new, pointer, keys, found);
        pointer.truncate(here);
    };
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
            for name in names {
                below(name, old.get(name), new.get(name));
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) if a != b => match by_name(a, b, member) {
            Some((old, new)) => {
                for (name, element) in &old {
                    below(name, Some(element), element_named(&new, name));
                }
                for (name, element) in new.iter().filter(|(name, _)| element_named(&old, name).is_none()) {
                    below(name, None, Some(element));
                }
            }
            None => found.push(field(pointer, old, new)),
        },
        _ if old == new => {}
        _ => found.push(field(pointer, old, new)),
    }
}

fn field(pointer: &str, from: Option<&Value>, to: Option<&Value>) -> FieldDiff {
    let change = match (from, to) {
        (None, _) => FieldChange::Add,
        (_, None) => FieldChange::Remove,
        _ => FieldChange::Replace,
    };
    FieldDiff { pointer: pointer.to_owned(), change, from: from.cloned(), to: to.cloned() }
}

type Named<'a> = Vec<(String, &'a Value)>;

/// Both arrays by name, if every element has one of its own, and the new array is the old one without what is gone and
/// with what is new at its end.
fn by_name<'a>(old: &'a [Value], new: &'a [Value], member: Option<&str>) -> Option<(Named<'a>, Named<'a>)> {
    let (old, new) = (named(old, member?)?, named(new, member?)?);
    let is_in = |list: &Named, name: &str| element_named(list, name).is_some();
    let kept = old.iter().filter(|(name, _)| is_in(&new, name));
    let added = new.iter().filter(|(name, _)| !is_in(&old, name));
    let is_in_place = kept.chain(added).map(|(name, _)| name).eq(new.iter().map(|(name, _)| name));
    is_in_place.then_some((old, new))
}

fn named<'a>(elements: &'a [Value], member: &str) -> Option<Named<'a>> {
    let named: Option<Named> = elements.iter().map(|element| Some((name_of(element, member)?, element))).collect();
    let named = named?;
    let names: BTreeSet<_> = named.iter().map(|(name, _)| name).collect();
    (names.len() == named.len()).then_some(named)
}

fn name_of(element: &Value, member: &str) -> Option<String> {
    match element.get(member)? {
        Value::String(name) => Some(name.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn element_named<'a>(elements: &Named<'a>, name: &str) -> Option<&'a Value> {
    elements.iter().find(|(other, _)| other == name).map(|(_, element)| *element)
}

/// The field at `pointer`, if the document has one.
pub fn find<'a>(document: &'a Value, pointer: &str, keys: &ArrayKeys) -> Option<&'a Value> {
    let mut value = document;
    let mut at = 0;
    for token in tokens(pointer)? {
        value = match value {
            Value::Object(members) => members.get(&unescaped(token))?,
            Value::Array(elements) => {
                let (member, name) = (keys.of(&pointer[..at])?, unescaped(token));
                elements.iter().find(|element| name_of(element, member).as_ref() == Some(&name))?
            }
            _ => return None,
        };
        at += 1 + token.len();
    }
    Some(value)
}

fn tokens(pointer: &str) -> Option<impl Iterator<Item = &str>> {
    let is_pointer = pointer.is_empty() || pointer.starts_with('/');
    is_pointer.then(|| pointer.split('/').skip(1))
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Whether a change at one pointer changes what is at the other: they are the same, or one is above the other.
pub fn touches(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*, sample};
    use serde_json::json;

    use super::*;
    use crate::model::json::tests::values;

    fn keys() -> ArrayKeys {
        let keys = [("/rules", "id"), ("/rules/*/steps", "name")];
        ArrayKeys::new(keys.map(|(pointer, member)| (pointer.to_owned(), member.to_owned())))
    }

    fn changes(old: Value, new: Value) -> Vec<(String, FieldChange)> {
        let found = diff(Some(&old), Some(&new), &keys());
        found.into_iter().map(|field| (field.pointer, field.change)).collect()
    }

    fn expect(old: Value, new: Value, expected: &[(&str, FieldChange)]) {
        let expected: Vec<_> = expected.iter().map(|(pointer, change)| ((*pointer).to_owned(), *change)).collect();
        assert_eq!(changes(old, new), expected);
    }

    /// What `diff` says, done to `old`.
    fn apply(old: Option<Value>, changes: &[FieldDiff], keys: &ArrayKeys) -> Option<Value> {
        let mut document = old;
        for change in changes {
            let Some((above, last)) = change.pointer.rsplit_once('/') else {
                document = change.to.clone();
                continue;
            };
            let mut place = document.as_mut().unwrap();
            let mut at = 0;
            for token in tokens(above).unwrap() {
                place = match place {
                    Value::Array(elements) => {
                        let member = keys.of(&above[..at]).unwrap();
                        let name = unescaped(token);
                        elements.iter_mut().find(|element| name_of(element, member).unwrap() == name).unwrap()
                    }
                    object => object.get_mut(unescaped(token)).unwrap(),
                };
                at += 1 + token.len();
            }
            match (place, &change.to) {
                (Value::Object(members), Some(to)) => _ = members.insert(unescaped(last), to.clone()),
                (Value::Object(members), None) => _ = members.remove(&unescaped(last)).unwrap(),
                (Value::Array(elements), to) => {
                    let member = keys.of(above).unwrap();
                    let at = elements.iter().position(|one| name_of(one, member).unwrap() == unescaped(last));
                    match (at, to) {
                        (Some(at), Some(to)) => elements[at] = to.clone(),
                        (Some(at), None) => _ = elements.remove(at),
                        (None, to) => elements.push(to.clone().unwrap()),
                    }
                }
                _ => panic!("{} has nothing below it", above),
            }
        }
        document
    }

    #[test]
    fn members_are_compared_by_name_and_values_as_a_whole() {
        let old = json!({"severity": "high", "limits": {"cpu": 2, "a/b~c": 1}, "owner": null, "gone": true});
        let new = json!({"severity": "critical", "limits": {"cpu": 2, "a/b~c": 2}, "owner": {}, "new": []});
        expect(
            old,
            new,
            &[
                ("/gone", FieldChange::Remove),
                ("/limits/a~1b~0c", FieldChange::Replace),
                ("/new", FieldChange::Add),
                ("/owner", FieldChange::Replace),
                ("/severity", FieldChange::Replace),
            ],
        );
        expect(json!(1), json!("1"), &[("", FieldChange::Replace)]);
        expect(json!({"a": null}), json!({}), &[("/a", FieldChange::Remove)]);
        expect(json!({}), json!([]), &[("", FieldChange::Replace)]);
    }

    #[test]
    fn an_array_without_a_key_is_one_field() {
        expect(json!({"to": [1, 2, 3]}), json!({"to": [0, 1, 2, 3]}), &[("/to", FieldChange::Replace)]);
        expect(json!([{"id": 1, "a": 1}]), json!([{"id": 1, "a": 2}]), &[("", FieldChange::Replace)]);
    }

    #[test]
    fn an_array_with_a_key_is_compared_by_name() {
        let rule = |id: Value, to: &str| json!({"id": id, "to": to, "steps": [{"name": "x", "n": 1}]});
        let old = json!({"rules": [rule(json!("a"), "1"), rule(json!("b/c"), "2"), rule(json!(7), "3")]});
        let mut new = json!({"rules": [rule(json!("b/c"), "2"), rule(json!(7), "4"), rule(json!("z"), "5")]});
        new["rules"][0]["steps"][0]["n"] = json!(2);
        let expected = [
            ("/rules/a", FieldChange::Remove),
            ("/rules/b~1c/steps/x/n", FieldChange::Replace),
            ("/rules/7/to", FieldChange::Replace),
            ("/rules/z", FieldChange::Add),
        ];
        expect(old.clone(), new.clone(), &expected);
        assert_eq!(find(&new, "/rules/b~1c/steps/x/n", &keys()), Some(&json!(2)));
        assert_eq!(find(&old, "/rules/7/to", &keys()), Some(&json!("3")));
    }

    #[test]
    fn a_key_that_names_nothing_certain_leaves_the_array_one_field() {
        let whole = &[("/rules", FieldChange::Replace)];
        let rules = |elements: Value| json!({ "rules": elements });
        let from = || rules(json!([{"id": "a"}, {"id": "b"}]));
        for to in [
            json!([{"id": "b"}, {"id": "a"}]),
            json!([{"id": "c"}, {"id": "a"}, {"id": "b"}]),
            json!([{"id": "a", "n": 1}, {"id": "a"}]),
            json!([{"id": 1}, {"id": "1"}]),
            json!([{"id": "a"}, {}]),
            json!([{"id": "a"}, {"id": null}]),
            json!([{"id": "a"}, "b"]),
        ] {
            expect(from(), rules(to), whole);
        }
    }

    #[test]
    fn a_document_that_comes_or_goes_is_one_field() {
        let document = json!({"a": 1});
        let keys = keys();
        assert_eq!(diff(None, None, &keys), []);
        let made = diff(None, Some(&document), &keys);
        assert_eq!((made.len(), made[0].change, made[0].pointer.as_str()), (1, FieldChange::Add, ""));
        assert_eq!(diff(Some(&document), None, &keys)[0].change, FieldChange::Remove);
    }

    #[test]
    fn a_pointer_that_leads_nowhere_finds_nothing() {
        let document = json!({"a": [1, {"id": "x"}], "rules": [{"id": "a"}, 1, {"id": null}], "": {"": 1}});
        for pointer in ["a", "/a/0", "/a/-", "/a/1/id", "/b", "/rules/0", "/rules/-", "/rules/null", "/a~", "//x", "~1"]
        {
            assert_eq!(find(&document, pointer, &keys()), None, "{pointer}");
        }
        assert_eq!(find(&document, "//", &keys()), Some(&json!(1)));
        assert_eq!(find(&document, "", &keys()), Some(&document));
    }

    #[test]
    fn pointers_touch_along_one_path_only() {
        for (a, b, expected) in [
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a/b", "/a", true),
            ("", "/a", true),
            ("/a", "/ab", false),
            ("/a/b", "/a/c", false),
            ("/a~1b", "/a", false),
        ] {
            assert_eq!(touches(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn null_and_nothing_are_written_apart() {
        let fields = diff(Some(&json!({"a": null})), Some(&json!({"b": null})), &keys());
        let written = serde_json::to_value(&fields).unwrap();
        let expected = json!([
            {"pointer": "/a", "change": "remove", "from": null}, {"pointer": "/b", "change": "add", "to": null},
        ]);
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<Vec<FieldDiff>>(written).unwrap(), fields);
    }

    /// Documents in which arrays with keys are common.
    fn documents() -> impl Strategy<Value = Value> {
        let name = sample::select(vec![json!("a"), json!("b/c"), json!("~"), json!(7), json!("7")]);
        let step = (name.clone(), 0..3).prop_map(|(name, n)| json!({"name": name, "n": n}));
        let rule = (name, 0..3, collection::vec(step, 0..3))
            .prop_map(|(id, to, steps)| json!({"id": id, "to": to, "steps": steps}));
        let rules = collection::vec(rule, 0..4);
        prop_oneof![(rules, values()).prop_map(|(rules, more)| json!({"rules": rules, "more": more})), values(),]
    }

    proptest! {
        #[test]
        fn what_changed_done_to_the_old_document_gives_the_new_one(
            old in proptest::option::weighted(0.9, documents()), new in proptest::option::weighted(0.9, documents()),
        ) {
            let keys = keys();
            let changes = diff(old.as_ref(), new.as_ref(), &keys);
            prop_assert_eq!(changes.is_empty(), old == new);
            prop_assert_eq!(&diff(old.as_ref(), new.as_ref(), &keys), &changes);
            prop_assert_eq!(apply(old, &changes, &keys), new);
        }

        #[test]
        fn a_change_says_what_is_at_its_pointer_on_both_sides(old in documents(), new in documents()) {
            let keys = keys();
            for FieldDiff { pointer, change, from, to } in diff(Some(&old), Some(&new), &keys) {
                prop_assert_eq!(find(&old, &pointer, &keys), from.as_ref());
                prop_assert_eq!(find(&new, &pointer, &keys), to.as_ref());
                prop_assert_ne!(&from, &to);
                let sides = match change {
                    FieldChange::Add => (false, true),
                    FieldChange::Replace => (true, true),
                    FieldChange::Remove => (true, false),
                };
                prop_assert_eq!(sides, (from.is_some(), to.is_some()));
            }
        }

        #[test]
        fn no_pointer_of_a_diff_touches_another(old in documents(), new in documents()) {
            let changes = diff(Some(&old), Some(&new), &keys());
            for (i, a) in changes.iter().enumerate() {
                for b in &changes[i + 1..] {
                    prop_assert!(!touches(&a.pointer, &b.pointer), "{} {}", a.pointer, b.pointer);
                }
            }
        }

        #[test]
        fn diffs_that_do_not_touch_can_be_done_in_either_order(
            base in documents(), mine in documents(), theirs in documents(),
        ) {
            let keys = keys();
            let [mine, theirs] = [mine, theirs].map(|to| diff(Some(&base), Some(&to), &keys));
            let touch = mine.iter().any(|a| theirs.iter().any(|b| touches(&a.pointer, &b.pointer)));
            prop_assert_eq!(touch, theirs.iter().any(|b| mine.iter().any(|a| touches(&b.pointer, &a.pointer))));
            // What both add to one array stands in the order of adding.
            let both_add = [&mine, &theirs].into_iter().all(|diff| diff.iter().any(|one| one.change == FieldChange::Add));
            if !(touch || both_add) {
                let one = apply(apply(Some(base.clone()), &mine, &keys), &theirs, &keys);
                let other = apply(apply(Some(base), &theirs, &keys), &mine, &keys);
                prop_assert_eq!(one, other);
            }
        }

        #[test]
        fn no_pointer_upsets_the_search(document in documents(), pointer in "[/~01ab*é-]{0,12}") {
            _ = find(&document, &pointer, &keys());
        }
    }
}
