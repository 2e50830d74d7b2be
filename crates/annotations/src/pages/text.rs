//! The text that comes with the service: a chapter of Don Quixote in John Ormsby's translation of 1885,
//! which is in the public domain.

pub const BOOK: &str = "Don Quixote";
pub const CHAPTER: &str = "Chapter IV";
pub const TITLE: &str = "Of what happened to our knight when he left the inn";
pub const BY: &str = "Miguel de Cervantes, translated by John Ormsby (1885)";

const TEXT: &str = include_str!("../../assets/texts/quixote-1-4.txt");

pub fn paragraphs() -> impl Iterator<Item = &'static str> {
    TEXT.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty())
}

#[cfg(test)]
mod tests {
    #[test]
    fn chapter_contains_the_passages_that_tests_quote() {
        let text: String = super::paragraphs().collect();
        for words in ["Don Quixote added it up", "closer than a lizard", "Andres"] {
            assert!(text.contains(words), "{words}");
        }
        assert!(!text.contains('"') && !text.contains("--") && !text.contains('\n'));
    }
}
