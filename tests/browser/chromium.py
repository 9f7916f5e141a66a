# SPDX-License-Identifier: MIT
"""Drives a headless Chromium through its DevTools protocol over two pipes: no port, no driver, no package."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds; ends what hangs, and never what is slow


class Failure(Exception):
    """The browser or the page did something wrong."""


def find_program():
    """Returns the path of Chromium, or None."""
    for name in (os.environ.get('LOCH_CHROMIUM'), 'chromium', 'chromium-browser', 'google-chrome'):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """One Chromium with one page."""

    def __init__(self, width=1280, height=900):
        self.folder = tempfile.mkdtemp(prefix='loch-browser.')
        to_browser, self.out = os.pipe()
        self.inp, from_browser = os.pipe()
        arguments = [find_program(), '--headless=new', '--remote-debugging-pipe', '--no-sandbox', '--no-first-run', '--disable-gpu',
                     '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update', '--disable-sync',
                     '--no-default-browser-check', '--hide-scrollbars', '--force-color-profile=srgb', '--force-device-scale-factor=1',
                     '--disable-extensions', '--mute-audio', f'--window-size={width},{height}', f'--user-data-dir={self.folder}/profile', 'about:blank']

        def connect():  # descriptors 3 and 4 are the pipe's names
            high = [os.dup(to_browser), os.dup(from_browser)]
            while min(high) <= 4:
                high = [os.dup(one) for one in high]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(arguments, preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, 'HOME': self.folder})
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b''
        self.number = 0
        self.session = None
        self.problems = []  # errors of scripts, messages of the console
        self.requests = []  # addresses that the page asked for
        targets = self.call('Target.getTargets')['targetInfos']
        target = next(one['targetId'] for one in targets if one['type'] == 'page')
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network', 'Accessibility'):
            self.call(domain + '.enable')
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=False)

    def close(self):
        """Ends the browser."""
        try:
            self.session = None
            self.call('Browser.close')
            self.process.wait(PATIENCE)
        except (Failure, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inp)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the protocol ---

    def read(self, deadline):
        """Returns the next message; None if there is none until the deadline."""
        while b'\0' not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.inp], [], [], left)[0]:
                return None
            part = os.read(self.inp, 1 << 20)
            if not part:
                raise Failure('the browser has ended')
            self.buffer += part
        message, self.buffer = self.buffer.split(b'\0', 1)
        return json.loads(message)

    def note(self, message):
        """Keeps what an event says."""
        method, parameters = message.get('method'), message.get('params', {})
        if method == 'Runtime.exceptionThrown':
            details = parameters['exceptionDetails']
            self.problems.append(details.get('exception', {}).get('description') or details['text'])
        elif method == 'Runtime.consoleAPICalled' and parameters['type'] in ('error', 'warning', 'assert'):
            self.problems.append(' '.join(str(one.get('value', one.get('description'))) for one in parameters['args']))
        elif method == 'Log.entryAdded' and parameters['entry']['level'] in ('error', 'warning'):
            self.problems.append(parameters['entry']['text'])
        elif method == 'Network.requestWillBeSent':
            self.requests.append(parameters['request']['url'])

    def call(self, method, **parameters):
        """Calls a method of the protocol and returns its result."""
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': parameters}
        if self.session:
            message['sessionId'] = self.session
        data = json.dumps(message).encode() + b'\0'
        while data:
            data = data[os.write(self.out, data):]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.read(deadline)
            if answer is None:
                raise Failure(f'{method}: no answer in {PATIENCE} s')
            if answer.get('id') == self.number:
                if 'error' in answer:
                    raise Failure(f'{method}: {answer["error"]["message"]}')
                return answer['result']
            self.note(answer)

    # --- the page ---

    def open(self, path, ready="document.documentElement && document.documentElement.dataset.state === 'ready'"):
        """Opens a file and waits until the report is complete."""
        self.js("document.documentElement.dataset.state = 'old'")
        self.problems.clear()
        self.requests.clear()
        self.call('Page.navigate', url='file://' + os.path.abspath(path))
        self.wait(ready, may_change=True)
        self.settle()

    def js(self, expression):
        """Returns the value of an expression, which may be a promise."""
        result = self.call('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in result:
            details = result['exceptionDetails']
            raise Failure(details.get('exception', {}).get('description') or details['text'])
        return result['result'].get('value')

    def wait(self, condition, may_change=False):
        """Waits until an expression is true. `may_change`: the page may be replaced meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self.js(condition):
                    return
            except Failure:
                if not may_change:
                    raise
            if time.monotonic() > deadline:
                raise Failure(f'not within {PATIENCE} s: {condition}; {self.problems}')
            time.sleep(0.02)

    def settle(self):
        """Waits until what was asked for is drawn: two frames."""
        self.js('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))')

    def box(self, selector):
        """Returns x, y, width and height of an element after it was scrolled into view."""
        return self.js(f"""(() => {{ const one = document.querySelector({json.dumps(selector)});
            one.scrollIntoView({{block: 'center', behavior: 'instant'}});
            const box = one.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; }})()""")

    def mouse(self, kind, x, y, **more):
        """Sends mouseMoved, mousePressed, mouseReleased or mouseWheel."""
        self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse('mouseMoved', x, y)
        self.settle()

    def click(self, selector):
        left, top, width, height = self.box(selector)
        place = (left + width / 2, top + height / 2)
        self.mouse('mousePressed', *place, button='left', clickCount=1)
        self.mouse('mouseReleased', *place, button='left', clickCount=1)
        self.settle()

    def drag(self, start, end, modifiers=0):
        self.mouse('mouseMoved', *start, modifiers=modifiers)
        self.mouse('mousePressed', *start, button='left', clickCount=1, modifiers=modifiers)
        for step in (0.3, 0.7, 1):
            self.mouse('mouseMoved', start[0] + (end[0] - start[0]) * step, start[1] + (end[1] - start[1]) * step, button='left', buttons=1, modifiers=modifiers)
        self.mouse('mouseReleased', *end, button='left', clickCount=1, modifiers=modifiers)
        self.settle()

    def wheel(self, x, y, delta):
        self.mouse('mouseWheel', x, y, deltaX=0, deltaY=delta)
        self.settle()

    def key(self, key, modifiers=0):
        """Presses a key as the keyboard does."""
        text = {'text': key} if len(key) == 1 and not modifiers else {}
        code = {'Tab': 9, 'Enter': 13, ' ': 32, 'ArrowLeft': 37, 'ArrowUp': 38, 'ArrowRight': 39, 'ArrowDown': 40, 'Home': 36, 'End': 35, 'Escape': 27}.get(key, 0)
        self.call('Input.dispatchKeyEvent', type='keyDown', key=key, windowsVirtualKeyCode=code, modifiers=modifiers, **text)
        self.call('Input.dispatchKeyEvent', type='keyUp', key=key, windowsVirtualKeyCode=code, modifiers=modifiers)
        self.settle()

    def scheme(self, name):
        """Says that the system is light or dark."""
        self.call('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': name}])
        self.settle()

    def screenshot(self, path, clip=None):
        parameters = {'format': 'png'}
        if clip:
            parameters['clip'] = dict(zip(('x', 'y', 'width', 'height'), clip), scale=1)
            parameters['captureBeyondViewport'] = True
        data = base64.b64decode(self.call('Page.captureScreenshot', **parameters)['data'])
        with open(path, 'wb') as file:
            file.write(data)
        return data

    def accessibility(self):
        """Returns (role, name) of everything in the accessibility tree that is not ignored."""
        nodes = self.call('Accessibility.getFullAXTree')['nodes']
        return [(node['role']['value'], node.get('name', {}).get('value', '')) for node in nodes if not node.get('ignored') and 'role' in node]
