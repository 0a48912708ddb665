//! The description of the API.

use serde_json::Value;

use crate::support::App;

#[tokio::test]
async fn the_description_names_every_route_and_how_it_refuses() {
    let app = App::sqlite().await;
    let description = app.get("/openapi.json").await.ok(200).body;
    assert_eq!(description["openapi"], "3.1.0");
    for (method, path) in [
        ("post", "/api/v1/operations"),
        ("get", "/api/v1/operations/{id}"),
        ("post", "/api/v1/operations/{id}/claim"),
        ("post", "/api/v1/operations/{id}/decisions"),
        ("post", "/api/v1/change-sets"),
        ("get", "/api/v1/change-sets/{id}"),
        ("post", "/api/v1/runs"),
        ("get", "/api/v1/events"),
        ("get", "/api/v1/audit/export"),
        ("put", "/api/v1/resources/{type}/{name}"),
        ("post", "/api/v1/resource-rules"),
    ] {
        let operation = &description["paths"][path][method];
        let refusal = &operation["responses"]["4XX"]["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(refusal, "#/components/schemas/ProblemDocument", "{method} {path}");
    }
    let mut references = Vec::new();
    collect(&description, &mut references);
    for reference in references {
        let found = description.pointer(reference.trim_start_matches('#'));
        assert!(found.is_some(), "{reference} leads nowhere");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value.as_str() {
                    Some(reference) if name == "$ref" => references.push(reference.to_owned()),
                    _ => collect(value, references),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}
