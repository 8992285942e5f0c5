// More models than memory, each in a process of its own, beside the same in one process: how long requests for them
// take, in a fixed random order (Zipf). On the first GPU, or without one on a simulated device. Returns 0 if every byte
// was as it must be.
//
//   models [GIB] [COUNT] [ROOM]     default: 8 models of 8 GiB in the room of 3; without a GPU 1 GiB in all
//
// `once`: the models do not change, and are saved once. `every pause`: each request changes its model. The plain copies
// are those of one model, from and to pinned memory, on the idle device.
#include "processes.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <random>

namespace {

using namespace processes;

constexpr std::size_t sample = 64_KiB;

/// Holds some of the models in host memory, and answers requests for them.
class Server {
public:
    Server(const AnyDriver& device, std::optional<Share> share, std::size_t bytes)
        : device_{device}, share_{std::move(share)}, saver_{share_ ? share_->driver() : device}, bytes_{bytes},
          block_{std::min(bytes, 1_GiB)}, read_(sample) {
        if (share_) lending_ = share_->lend(saver_);
    }

    void obey(int from) {
        for (;;) {
            const auto command = get<Command>(from);
            Answer answer;
            answer.began = milliseconds();
            switch (command.what) {
            case 'a': add(command.value); break;
            case 'r': answer.value = request(command.value, false); break;
            case 'w': answer.value = request(command.value, true); break;
            default: return;
            }
            answer.ended = milliseconds();
            put(from, answer);
        }
    }

private:
    struct Model {
        int number;
        std::string tag;
        std::vector<void*> blocks;
    };

    void add(int number) {
        Model model{number, "model" + std::to_string(number), {}};
        Arena arena = saver_.arena(model.tag, HostBackup{.refresh = Refresh::once}, {.evictable = true});
        for (std::size_t at = 0; at < bytes_; at += block_) {
            model.blocks.push_back(arena.allocate(block_));
            fill(device_, reinterpret_cast<Address>(model.blocks.back()), value(number), block_);
        }
        saver_.pause(model.tag); // its bytes are saved
        models_.push_back(std::move(model));
    }

    static unsigned char value(int number) { return static_cast<unsigned char>(17 * number + 1); }

    /// 1 if the model had to come back; 2 more if its bytes are not its own.
    double request(int number, bool changes) {
        const auto model =
            std::find_if(models_.begin(), models_.end(), [&](const Model& m) { return m.number == number; });
        const std::size_t before = saver_.usage().residency().misses;
        const Use use = saver_.use(model->tag, {.room_within = std::chrono::seconds{60}});
        bool right = true;
        StreamRef stream;
        check(device_.open_stream(stream), "open a stream");
        for (void* const block : {model->blocks.front(), model->blocks.back()}) {
            const Address end = reinterpret_cast<Address>(block) + block_ - sample;
            check(device_.copy_to_host(read_.data(), end, sample, stream), "copy");
            check(device_.drain(), "drain");
            right =
                right && std::all_of(read_.begin(), read_.end(), [&](unsigned char c) { return c == value(number); });
        }
        check(device_.close_stream(stream), "close a stream");
        if (changes) saver_.invalidate(model->tag); // the next pause saves all of it
        return static_cast<double>(saver_.usage().residency().misses - before) + (right ? 0 : 2);
    }

    AnyDriver device_;
    std::optional<Share> share_;
    MemorySaver<> saver_;
    Lending lending_;
    std::size_t bytes_;
    std::size_t block_;
    std::vector<unsigned char> read_;
    std::vector<Model> models_;
};

/// The same for any number of processes.
std::vector<int> requests(int models) {
    std::vector<double> weights;
    for (int i = 0; i < models; ++i) weights.push_back(1.0 / (i + 1));
    std::mt19937 random{5};
    std::discrete_distribution<int> chosen{weights.begin(), weights.end()};
    std::vector<int> all(60);
    for (int& each : all) each = chosen(random);
    return all;
}

struct Served {
    double took = 0; // milliseconds
    int misses = 0;
};

/// What plain copies of a model take, each way, in milliseconds.
struct Copies {
    double in = 0;
    double out = 0;
};

Copies plain_copies(const AnyDriver& device, std::size_t bytes) {
    const std::size_t part = std::min(bytes, 1_GiB);
    void* const host = pinned(device, part);
    std::memset(host, 1, part);
    MemorySaver<> saver{device};
    const auto at = reinterpret_cast<Address>(saver.arena("copied", Discard{}).allocate(part));
    StreamRef stream;
    check(device.open_stream(stream), "open a stream");
    const auto each = [&](auto copy) {
        std::vector<double> took;
        for (int round = 0; round < 3; ++round)
            took.push_back(timed([&] {
                for (std::size_t done = 0; done < bytes; done += part) check(copy(), "copy");
                check(device.drain(), "drain");
            }));
        return median(took);
    };
    Copies result;
    result.in = each([&] { return device.copy_to_device(at, host, part, stream); });
    result.out = each([&] { return device.copy_to_host(host, at, part, stream); });
    return result;
}

/// Measured in a process of its own: this one forks.
Copies plain_copies(std::size_t bytes, bool& right) {
    const Place place{bytes * 2};
    Wire to;
    const pid_t child = start([&] { put(to.ends[1], plain_copies(place.device(), bytes)); });
    const auto result = get<Copies>(to.ends[0]);
    int status = 0;
    (void)::waitpid(child, &status, 0);
    right = right && status == 0;
    return result;
}

/// Serves with so many processes: requests that change nothing, then others.
std::array<Served, 2> measure(std::size_t bytes, int models, int room, int servers, bool& all_right) {
    const Place place{static_cast<std::size_t>(room) * bytes + bytes / 8};
    std::vector<Wire> to(static_cast<std::size_t>(servers) + 1);
    std::vector<pid_t> children;
    for (int i = 0; i < servers; ++i)
        children.push_back(start([&] {
            std::optional<Share> share;
            const AnyDriver device = place.device();
            if (servers > 1)
                share.emplace(
                    device,
                    ShareOptions{.name = "server" + std::to_string(i), .trusted = true, .folder = place.folder});
            Server{device, std::move(share), bytes}.obey(to[static_cast<std::size_t>(i)].ends[1]);
        }));
    const auto tell = [&](int model, char what) {
        put(to[static_cast<std::size_t>(model % servers)].ends[0], Command{what, model});
    };
    const auto heard = [&](int model) { return get<Answer>(to[static_cast<std::size_t>(model % servers)].ends[0]); };
    for (int i = 0; i < models; ++i) {
        tell(i, 'a');
        (void)heard(i);
    }
    Wire& hog = to.back();
    if (place.gpu) { // the rest of the device, once all contexts are there
        children.push_back(start([&] {
            const AnyDriver device = place.device();
            hold_all_but(device, static_cast<std::size_t>(room) * bytes + 512_MiB);
            put(hog.ends[1], Answer{});
            (void)get<Command>(hog.ends[1]);
        }));
        (void)get<Answer>(hog.ends[0]);
    }
    bool right = true;
    const auto serve = [&](char what) {
        Served served;
        for (const int model : requests(models)) {
            tell(model, what);
            const Answer answer = heard(model);
            served.took += answer.ended - answer.began;
            served.misses += static_cast<int>(answer.value) & 1;
            right = right && answer.value < 2;
        }
        return served;
    };
    (void)serve('r'); // fills the room
    const std::array<Served, 2> result{serve('r'), serve('w')};
    for (std::size_t i = 0; i < children.size(); ++i) {
        put(to[i].ends[0], Command{});
        int status = 0;
        (void)::waitpid(children[i], &status, 0);
        right = right && status == 0;
    }
    if (!right) std::printf("WRONG BYTES, or a process that failed\n");
    all_right = all_right && right;
    return result;
}

} // namespace

int main(int count, char** arguments) {
    const auto number = [&](int index, std::size_t usual) {
        return index < count ? std::strtoul(arguments[index], nullptr, 10) : usual;
    };
    const bool gpu = std::filesystem::exists("/dev/nvidiactl");
    const std::size_t bytes = gpu || count > 1 ? number(1, 8) * 1_GiB : 128_MiB;
    const int models = static_cast<int>(number(2, 8));
    const int room = static_cast<int>(number(3, 3));
    bool right = true;
    const Copies copy = plain_copies(bytes, right);
    const auto one = measure(bytes, models, room, 1, right);
    const auto many = measure(bytes, models, room, models, right);
    std::printf("%d models of %.2f GiB in the room of %d, %zu requests; plain copy in %.1f ms, out %.1f ms\n", models,
                static_cast<double>(bytes) / static_cast<double>(1_GiB), room, requests(models).size(), copy.in,
                copy.out);
    const char* const what[] = {"once", "every pause"};
    for (std::size_t i = 0; i < 2; ++i) {
        const auto each = [&](const Served& served) { return served.took / std::max(served.misses, 1); };
        const double floor = copy.in + (i == 0 ? 0 : copy.out);
        std::printf("%s: one process %.0f ms with %d misses, %.2f of the copies each; a process each %.0f ms with %d "
                    "misses, %.2f of the copies each; ratio %.2f\n",
                    what[i], one[i].took, one[i].misses, each(one[i]) / floor, many[i].took, many[i].misses,
                    each(many[i]) / floor, many[i].took / one[i].took);
    }
    return right ? 0 : 1;
}
