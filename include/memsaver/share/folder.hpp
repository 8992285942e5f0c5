// The folder in which the members of a share meet.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/share/message.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// `<runtime dir>/memsaver/<device>`, or the folder that the program names; the runtime dir is XDG_RUNTIME_DIR, else
/// /tmp/memsaver-UID. Its rights are the security of the share: it is made with mode 0700, and refused if another user
/// owns it or has any right in it.
class ShareFolder {
public:
    /// `folder`: empty for the usual one. Throws Unavailable with the folder and the reason.
    ShareFolder(const std::string& identity, const std::string& folder);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    /// Takes the leader's lock. It ends with the descriptor, or with the process. Invalid, with errno, if it cannot be
    /// had: EAGAIN if somebody has it.
    [[nodiscard]] ShareFd lead() const;
    /// The leader's socket, for who has its lock. Invalid, with errno, if it cannot be made.
    [[nodiscard]] ShareFd listen() const { return listen("leader"); }
    /// A connection to the leader; invalid if there is none.
    [[nodiscard]] ShareFd connect() const { return connect("leader"); }

    /// A socket of this name, in place of any that was there. Nobody sees it before it can be connected to.
    [[nodiscard]] ShareFd listen(const char* name) const;
    /// Invalid, with errno, if nobody is there: ECONNREFUSED if the process of the socket has ended.
    [[nodiscard]] ShareFd connect(const char* name) const;
    /// The names that begin so.
    [[nodiscard]] std::vector<std::string> names(std::string_view prefix) const;
    void remove(const char* name) const noexcept;
    /// One of many locks, by number, if nobody has it. Ends with the descriptor, or with the process. Throws
    /// Unavailable if it cannot be asked for.
    [[nodiscard]] ShareFd lock(std::uint64_t number) const;
    /// Throws Unavailable: "Share: cannot read the folder /tmp/...: EMFILE".
    [[noreturn]] void refuse(const char* what, const Status& status) const;

private:
    std::string path_;
    ShareFd folder_;
};

} // namespace memsaver::inline v0_3::detail

#include "memsaver/share/folder.ipp"
