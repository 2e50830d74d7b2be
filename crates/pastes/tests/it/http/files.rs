//! `curl -F`.

use reqwest::StatusCode;

use super::{Site, header, patient, settings};

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
async fn a_file_and_its_options_come_as_a_form() {
    let site = Site::new().await;
    let parts = [
        part("expires", "", "1d"),
        part("file", "; filename=\"main.py\"", "print(1)\r\n"),
        part("alias", "", "by-form"),
    ];
    let answer = send(&site, &parts).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert!(header(answer.headers(), "location").ends_with("/by-form"));
    assert_eq!(answer.text().await.unwrap(), format!("{}\n", site.url("/by-form")));
    site.rig.work().await;
    assert_eq!(site.rig.bytes(&"by-form".parse().unwrap()).await, b"print(1)\r\n", "as it is");
    let sql = "select count(*) from pastes.pastes where language = 'python'";
    assert_eq!(site.rig.count(sql).await, 1, "the file's name says the language");
}

#[tokio::test]
async fn a_text_field_is_a_paste_too() {
    let site = Site::new().await;
    let answer = send(&site, &[part("content", "", "hello")]).await;
    let code = site.code_of(&answer.text().await.unwrap());
    site.rig.work().await;
    assert_eq!(site.rig.bytes(&code).await, b"hello");
}

#[tokio::test]
async fn forms_that_cannot_be_meant_are_refused() {
    let site = Site::with(pastes::Settings { max_size: 1000, ..settings() }, patient()).await;
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
        let answer = send(&site, &parts).await;
        assert_eq!(answer.status().as_u16(), status, "{words}");
        let text = answer.text().await.unwrap();
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
        let answer = site.post("/").header("content-type", kind).body(body).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{kind} {body}");
    }
    assert_eq!(site.rig.count("select count(*) from pastes.pastes").await, 0);
}

#[tokio::test]
async fn h3_h4_a_file_name_is_never_part_of_an_answer() {
    let site = Site::new().await;
    for name in ["../../etc/passwd", "<script>alert(1)</script>.html", "a\\u0000.rs", "x\";evil=\""]
    {
        let name = name.replace('"', "%22");
        let answer = send(&site, &[part("file", &format!("; filename=\"{name}\""), "x")]).await;
        assert_eq!(answer.status(), StatusCode::CREATED, "{name}");
        let headers = format!("{:?}", answer.headers());
        let text = answer.text().await.unwrap();
        for word in ["passwd", "script", "evil"] {
            assert!(!text.contains(word) && !headers.contains(word), "{word}");
        }
    }
}
