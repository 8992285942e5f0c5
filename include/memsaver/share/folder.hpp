// The folder in which the members of a share meet.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/share/message.hpp"

#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

/// `<runtime dir>/memsaver/<device>`, or the folder that the program names; the runtime dir is XDG_RUNTIME_DIR, else
/// /tmp/memsaver-UID. Its rights are the security of the share: it is made with mode 0700, and refused if another user
/// owns it or has any right in it.
class ShareFolder {
public:
    /// `folder`: empty for the usual one. Throws Unavailable with the folder and the reason.
    ShareFolder(const std::string& identity, const std::string& folder);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    /// Takes the leader's lock, if nobody has it. It ends with the descriptor, or with the process.
    [[nodiscard]] ShareFd lead() const;
    /// The leader's socket, for who has its lock. Invalid if it cannot be made.
    [[nodiscard]] ShareFd listen() const;
    /// A connection to the leader; invalid if there is none.
    [[nodiscard]] ShareFd connect() const;

private:
    std::string path_;
    ShareFd folder_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#include "memsaver/share/folder.ipp"
