"""The stand-in of torch_generate.py on the driver API alone, so that it runs on the simulator too: kernels of the same structure, no network.

A request is a prefill that lasts longer with longer prompts, then the launches of driver_decode.py's eager tokens with a wait after each.
Commands and arrivals: generating.py.
"""

import argparse
import json
import sys

import driver_decode
import generating

# Time of a prefill's kernels for each token of the prompt, us.
PREFILL_US = 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--staged", action="store_true", help="say when the libraries are loaded, and wait for a line before anything else")
    if parser.parse_args().staged:
        print(json.dumps({"loaded": True}), flush=True)
        sys.stdin.readline()
    service, about = driver_decode.make("eager", 1)

    def generate(prompt, tokens, put):
        service.launch(int(PREFILL_US * generating.PROMPTS[prompt]))
        service.copy()
        put(service.wait() + prompt)
        for number in range(1, tokens):
            service.enqueue_token()
            put(service.wait() + prompt + number)

    generating.run(generate, about)


if __name__ == "__main__":
    main()
