//! What to install where: the text of the error for a machine without PostgreSQL's server programs.

/// The sentence that names the command for this system.
/// `os` is Rust's name of the operating system, `os_release` the content of `/etc/os-release` (empty where there is none).
pub(crate) fn advice(os: &str, os_release: &str) -> String {
    let command = match os {
        "macos" => "brew install postgresql@17",
        "freebsd" => "pkg install postgresql17-server postgresql17-client",
        "linux" => linux(os_release),
        _ => "",
    };
    if command.is_empty() {
        return "Install PostgreSQL's server programs (initdb, postgres) and its clients (psql, pgbench).".into();
    }
    format!("Install them with:  {command}")
}

fn linux(os_release: &str) -> &'static str {
    let mut ids: Vec<String> = Vec::new();
    for key in ["ID=", "ID_LIKE="] {
        for line in os_release.lines() {
            if let Some(value) = line.strip_prefix(key) {
                ids.extend(value.trim_matches('"').split_whitespace().map(str::to_owned));
            }
        }
    }
    for id in &ids {
        match id.as_str() {
            "debian" | "ubuntu" => return "sudo apt-get install postgresql",
            "fedora" | "rhel" | "centos" => {
                return "sudo dnf install postgresql-server postgresql-contrib";
            }
            "arch" => return "sudo pacman -S postgresql",
            "alpine" => return "sudo apk add postgresql postgresql-client postgresql-contrib",
            "suse" | "opensuse" => {
                return "sudo zypper install postgresql-server postgresql-contrib";
            }
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_has_its_command() {
        let debian = advice("linux", "PRETTY_NAME=\"Debian\"\nID=debian\n");
        assert!(debian.ends_with("sudo apt-get install postgresql"), "{debian}");
        let mint = advice("linux", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n");
        assert!(mint.contains("apt-get"), "{mint}");
        let rocky = advice("linux", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n");
        assert!(rocky.contains("dnf install postgresql-server"), "{rocky}");
        assert!(advice("linux", "ID=arch\n").contains("pacman"));
        assert!(advice("linux", "ID=alpine\n").contains("apk add"));
        assert!(advice("macos", "").contains("brew install"));
        let unknown = advice("linux", "");
        assert!(unknown.contains("initdb") && unknown.contains("postgres"), "{unknown}");
    }
}
