"""The result of a comparison as text."""


def render(result):
    parts = [_heading(result), _load(result), _latency(result), _connections(result), _wake(result), _bars(result)]
    return "\n\n".join(parts) + "\n"


def _heading(result):
    machine, settings = result["machine"], result["settings"]
    lines = [f"muster compared with PyTorch's TCPStore and Redis: {settings['clients']} clients, values of "
             f"{settings['value_size']} bytes, medians over {settings['rounds']} rounds",
             f"{machine['cores']} cores, of which other work took {machine['other_cores']:.2f}; {machine['system']}; "
             f"took {result['took_seconds']} s; {result['errors']} wrong answers"]
    lines += [f"left out: {missing}" for missing in result["missing"]]
    return "\n".join(lines)


def _load(result):
    lines = []
    for depth in (1, 16):
        lines.append(f"{'unpipelined' if depth == 1 else f'pipelined by {depth}':<16} {'server':<18} {'ops/s':>10} "
                     f"{'p50 us':>9} {'p99 us':>9} {'p99.9 us':>9} {'server CPU us/op':>17} {'ops/s per core':>15} "
                     f"{'memory MiB':>11}")
        for row in result["load"]:
            if row["pipeline"] != depth:
                continue
            cpu = row["server_cpu_us_per_op"]
            lines.append(f"{row['op']:<16} {row['server']:<18} {row['ops_per_second']:>10.0f} {row['p50_us']:>9.1f} "
                         f"{row['p99_us']:>9.1f} {row['p999_us']:>9.1f} {cpu:>17.3f} "
                         f"{1e6 / cpu if cpu else 0:>15.0f} {row['server_rss_bytes'] / 2**20:>11.1f}")
        lines.append("")
    return "\n".join(lines).rstrip()


def _latency(result):
    lines = [f"{'one client':<16} {'p50 us':>9} {'p99 us':>9} {'echo p50 us':>12} {'echo p99 us':>12} {'p50 ratio':>10}"]
    lines += [f"{row['op']:<16} {row['p50_us']:>9.2f} {row['p99_us']:>9.2f} {row['echo_p50_us']:>12.2f} "
              f"{row['echo_p99_us']:>12.2f} {row['p50_ratio']:>10.2f}" for row in result["latency"]]
    return "\n".join(lines)


def _connections(result):
    lines = [f"{'connections':<18} {'number':>8} {'seconds':>9} {'memory MiB':>11} {'bytes each':>11}"]
    lines += [f"{name:<18} {row['connections']:>8} {row['seconds']:>9.3f} {row['server_rss_bytes'] / 2**20:>11.1f} "
              f"{row['server_bytes_per_connection']:>11}" for name, row in result["connections"].items()]
    return "\n".join(lines)


def _wake(result):
    lines = [f"{'waking one':<18} {'others':>8} {'p50 us':>9} {'p99 us':>9}"]
    for name, curve in result["wake"].items():
        lines += [f"{name:<18} {point['waiters']:>8} {point['p50_us']:>9.2f} {point['p99_us']:>9.2f}" for point in curve]
    return "\n".join(lines)


def _bars(result):
    width = max(len(row["what"]) for row in result["bars"])
    lines = [f"{'bar':<{width}} {'measured':>12} {'wanted':>10}"]
    for row in result["bars"]:
        verdict = {True: "met", False: "MISSED", None: ""}[row["met"]]
        measured = f"{row['measured']:g} {row['unit']}"
        lines.append(f"{row['what']:<{width}} {measured:>12} {row['bar']:>10}  {verdict}".rstrip())
    missed = sum(row["met"] is False for row in result["bars"])
    met = sum(row["met"] is True for row in result["bars"])
    lines.append(f"{met} bars met, {missed} missed")
    return "\n".join(lines)
