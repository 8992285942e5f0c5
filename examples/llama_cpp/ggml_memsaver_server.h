// The routes that edit.py adds to llama-server. Depends on the server's queue and on its HTTP server only as far as the
// functions below call them.
#pragma once

#include "ggml_memsaver.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

// POST /sleep returns once the server sleeps, which it does when no request is left; POST /wake once it is awake. They
// and GET /memory answer {"sleeping":..., "memory":...}, with what memsaver_get_usage_json() says, or null if it is
// off.
template <class Response, class Http, class Queue, class Names>
void ggml_memsaver_routes(Http& http, Queue& queue, const Names& names) {
    if (!names.empty()) ggml_memsaver_set_member(names.begin()->c_str());
    const auto answer = [&queue] {
        auto response = std::make_unique<Response>();
        char* usage = nullptr;
        if (memsaver_saver* const saver = ggml_memsaver_saver()) memsaver_get_usage_json(saver, &usage);
        response->data = std::string{"{\"sleeping\":"} + (queue.is_sleeping() ? "true" : "false");
        response->data += std::string{",\"memory\":"} + (usage != nullptr ? usage : "null") + "}";
        memsaver_free_text(usage);
        return response;
    };
    http.get("/memory", [answer](const auto&) { return answer(); });
    http.post("/wake", [answer, &queue](const auto&) {
        queue.wait_until_no_sleep();
        return answer();
    });
    http.post("/sleep", [answer, &queue](const auto&) {
        for (bool wanted = queue.ask_to_sleep(true); wanted; wanted = queue.ask_to_sleep(false)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return answer();
    });
}

// The router sends them on to the worker of the "model" that they name.
template <class Http, class Handler>
void ggml_memsaver_router_routes(Http& http, Handler get, Handler post) {
    http.get("/memory", get);
    http.post("/wake", post);
    http.post("/sleep", post);
}

// For the router: whether a request has reached nobody because its worker, at this port, had been killed. Waits until
// the router knows of that.
template <class Models, class Proxy>
bool ggml_memsaver_worker_died(Models& models, const std::string& name, int port, const Proxy& proxy, bool cancelled) {
    if (cancelled || proxy.status != 500 || !proxy.headers.empty()) return false;
    for (int i = 0; i < 1000; ++i) {
        const auto meta = models.get_meta(name);
        if (!meta.has_value() || !meta->is_running() || meta->port != port) return meta.has_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}
