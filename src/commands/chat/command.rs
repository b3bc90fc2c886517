//! Lines of a chat that begin with a slash.

use std::path::PathBuf;

use anyhow::bail;

/// What `/help` says.
pub const HELP: &str = "\
/help              this list
/clear             begins a new conversation; the system message stays
/system [TEXT]     shows the system message, or replaces it; - removes it
/undo              forgets the last message and its answer
/retry             answers the last message again; with a temperature, from the next seed
/save FILE         writes the conversation as JSON; it is a line for `unisonic batch`, and a request of a server
/load FILE         goes on with such a conversation
/set [NAME VALUE]  shows the settings, or changes one: temperature, top_k, top_p, seed, max_tokens, …; off takes it away
/stats             tokens and speed so far
/quit              ends the chat, as Ctrl-D does
//TEXT             a message that begins with a slash
A line that ends in \\ goes on in the next; lines between two lines of \"\"\" are one message; Alt-Enter begins a line.
Ctrl-C stops an answer.";

/// The commands, for completion.
pub const NAMES: [&str; 10] =
    ["/help", "/clear", "/system", "/undo", "/retry", "/save", "/load", "/set", "/stats", "/quit"];

/// What a line asks for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// It is empty.
    Nothing,
    /// A message to answer.
    Say(String),
    Help,
    Clear,
    /// The new system message; none: show it.
    System(Option<String>),
    Undo,
    Retry,
    Save(PathBuf),
    Load(PathBuf),
    /// The settings.
    Show,
    Set {
        name: String,
        value: String,
    },
    Stats,
    Quit,
}

impl Command {
    /// Reads a line.
    pub fn parse(line: &str) -> anyhow::Result<Self> {
        let trimmed = line.trim();
        let Some(rest) = trimmed.strip_prefix('/') else {
            return Ok(if trimmed.is_empty() { Self::Nothing } else { Self::Say(line.to_owned()) });
        };
        if rest.starts_with('/') {
            return Ok(Self::Say(rest.to_owned()));
        }
        let (name, of) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let of = of.trim();
        let command = match (name, of) {
            ("help" | "?", "") => Self::Help,
            ("clear" | "new", "") => Self::Clear,
            ("system", "") => Self::System(None),
            ("system", "-") => Self::System(Some(String::new())),
            ("system", text) => Self::System(Some(text.to_owned())),
            ("undo", "") => Self::Undo,
            ("retry", "") => Self::Retry,
            ("stats", "") => Self::Stats,
            ("quit" | "exit" | "bye", "") => Self::Quit,
            ("set", "") => Self::Show,
            ("set", of) => match of.split_once([' ', '=']) {
                Some((name, value)) => {
                    Self::Set { name: name.trim().to_owned(), value: value.trim().to_owned() }
                }
                None => bail!("/set needs a name and a value, such as `/set temperature 0.8`"),
            },
            ("save" | "load", "") => bail!("/{name} needs the path of a file"),
            ("save", path) => Self::Save(path.into()),
            ("load", path) => Self::Load(path.into()),
            (name, _) if NAMES.iter().any(|known| known.strip_prefix('/') == Some(name)) => {
                bail!("/{name} takes nothing; a message that begins with a slash is written //{name} …")
            }
            (name, _) => bail!(
                "there is no command /{name}; /help lists them, and a message that begins with a slash is written //{name}"
            ),
        };
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_unless_it_begins_with_one_slash() {
        let parse = |line: &str| Command::parse(line).unwrap();
        assert_eq!(parse("  "), Command::Nothing);
        assert_eq!(parse(" a /b"), Command::Say(" a /b".into()));
        assert_eq!(parse("//etc/hosts"), Command::Say("/etc/hosts".into()));
        assert_eq!(parse("/system  Be brief. "), Command::System(Some("Be brief.".into())));
        assert_eq!(parse("/system -"), Command::System(Some(String::new())));
        assert_eq!(parse("/save my chat.json"), Command::Save("my chat.json".into()));
        let right = Command::Set { name: "top_p".into(), value: "0.9".into() };
        assert_eq!(
            (parse("/set top_p 0.9"), parse("/set top_p=0.9")),
            (right, Command::Set { name: "top_p".into(), value: "0.9".into() })
        );
        for name in NAMES {
            // What needs more says so; none is unknown.
            let said = Command::parse(name).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!said.contains("no command"), "{said}");
        }
        for wrong in ["/etc/hosts", "/set temperature", "/save", "/undo it"] {
            assert!(Command::parse(wrong).is_err(), "{wrong}");
        }
    }
}
