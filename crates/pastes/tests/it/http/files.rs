//! `curl -F`.

use reqwest::StatusCode;

use super::{Site, header, long_limits, settings};

fn part(name: &str, more: &str, value: &str) -> String {
    format!(
        "--b0undary\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{value}\r\n"
    )
}

async fn send(site: &Site, parts: &[String]) -> reqwest::Response {
    let body = format!("{}--b0undary--\r\n", parts.concat());
    let kind = "multipart/form-data; boundary=b0undary";
    site.post("/").header("content-type", kind).body(body).send().await.unwrap()
}

#[tokio::test]
async fn multipart_form_creates_a_paste_with_its_options() {
    let site = Site::new().await;
    let parts = [
        part("expires", "", "1d"),
        part("file", "; filename=\"main.py\"", "print(1)\r\n"),
        part("alias", "", "by-form"),
    ];
    let response = send(&site, &parts).await;
    assert_eq!(response.status(), StatusCode::CREATED);
    assert!(header(response.headers(), "location").ends_with("/by-form"));
    assert_eq!(response.text().await.unwrap(), format!("{}\n", site.url("/by-form")));
    site.fixture.work().await;
    assert_eq!(site.fixture.bytes(&"by-form".parse().unwrap()).await, b"print(1)\r\n", "unchanged");
    let sql = "select count(*) from pastes.pastes where language = 'python'";
    assert_eq!(site.fixture.count(sql).await, 1, "the name of the file sets the language");
}

#[tokio::test]
async fn multipart_text_field_creates_a_paste() {
    let site = Site::new().await;
    let response = send(&site, &[part("content", "", "hello")]).await;
    let code = site.code_of(&response.text().await.unwrap());
    site.fixture.work().await;
    assert_eq!(site.fixture.bytes(&code).await, b"hello");
}

#[tokio::test]
async fn ambiguous_or_malformed_form_is_refused() {
    let site = Site::with(pastes::Settings { max_size: 1000, ..settings() }, long_limits()).await;
    let file = part("file", "; filename=\"a\"", "x");
    let cases = [
        (vec![], 400, "at least one byte"),
        (vec![part("file", "; filename=\"\"", "")], 400, "at least one byte"),
        (vec![file.clone(), part("content", "", "y")], 400, "one text or one file"),
        (vec![file.clone(), part("expire", "", "1d")], 400, "There is no field"),
        (vec![part("file", "; filename=\"a\"", &"x".repeat(1001))], 413, "at most 1000 bytes"),
        (vec![file.clone(); 40], 400, "one text or one file"),
        (vec![part("expires", "", "1d"); 40], 400, "too many fields"),
    ];
    for (parts, status, words) in cases {
        let response = send(&site, &parts).await;
        assert_eq!(response.status().as_u16(), status, "{words}");
        let text = response.text().await.unwrap();
        assert!(text.contains(words), "{text}");
    }
    for (kind, body) in [
        ("multipart/form-data", "x"),
        ("multipart/form-data; boundary=b", "no boundary here"),
        (
            "multipart/form-data; boundary=b",
            "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ncut",
        ),
    ] {
        let response = site.post("/").header("content-type", kind).body(body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{kind} {body}");
    }
    assert_eq!(site.fixture.count("select count(*) from pastes.pastes").await, 0);
}

#[tokio::test]
async fn h3_h4_file_name_is_never_part_of_a_response() {
    let site = Site::new().await;
    for name in ["../../etc/passwd", "<script>alert(1)</script>.html", "a\\u0000.rs", "x\";evil=\""]
    {
        let name = name.replace('"', "%22");
        let response = send(&site, &[part("file", &format!("; filename=\"{name}\""), "x")]).await;
        assert_eq!(response.status(), StatusCode::CREATED, "{name}");
        let headers = format!("{:?}", response.headers());
        let text = response.text().await.unwrap();
        for word in ["passwd", "script", "evil"] {
            assert!(!text.contains(word) && !headers.contains(word), "{word}");
        }
    }
}
