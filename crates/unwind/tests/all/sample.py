# Run by gdb: writes the state of a program at many instructions, and gdb's own stack of each.
#
# What it needs is in the environment:
#   SAMPLE_OUT    the file to write
#   SAMPLE_START  a function to run to first; may be empty
#   SAMPLE_BREAK  a breakpoint to run to then
#   SAMPLE_SKIP   how many hits of it to skip
#   SAMPLE_STEPS  how many samples
#   SAMPLE_EVERY  how many instructions from one sample to the next; 0: to the next hit
#
# Lines of the file; all numbers are hexadecimal:
#   M start end offset path      a mapping of a file; new ones follow when they change
#   V start bytes                the vdso
#   P rip rax rdx rcx rbx rsi rdi rbp rsp r8 .. r15
#   C bytes                      the code at rip
#   N name ...                   the functions of the frames
#   F address ...                gdb's frames, from the innermost
#   U reason                     why gdb ends there; 2: it is the outermost frame
#   S start bytes                a piece of memory with stack
import gdb
import os

NAMES = 'rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15'.split()
MASK = (1 << 64) - 1
# What is read beyond a frame's rsp: its caller's pieces, and the registers that a signal leaves.
BEYOND = 2048
FRAMES = 200
OUTERMOST = 2


def number(frame, name):
    return int(frame.read_register(name)) & MASK


class Sampler:
    def __init__(self, out):
        self.out = out
        self.maps = None

    def mappings(self):
        with open('/proc/%d/maps' % gdb.selected_inferior().pid) as maps:
            text = maps.read()
        if text != self.maps:
            self.maps = text
            self.ranges = []
            for line in text.splitlines():
                parts = line.split(None, 5)
                start, end = (int(part, 16) for part in parts[0].split('-'))
                path = parts[5] if len(parts) > 5 else ''
                self.ranges.append((start, end))
                if path.startswith('/'):
                    self.out.write('M %x %x %s %s\n' % (start, end, parts[2], path))
                elif path == '[stack]':
                    self.stack = (start, end)
                elif path == '[vdso]':
                    self.out.write('V %x %s\n' % (start, self.memory(start, end)))
        return self.ranges

    def memory(self, start, end):
        return gdb.selected_inferior().read_memory(start, end - start).tobytes().hex()

    def sample(self):
        ranges = self.mappings()
        frame = gdb.newest_frame()
        registers = ' '.join('%x' % number(frame, name) for name in NAMES)
        pieces, addresses, names = {}, [], []
        while frame is not None and len(addresses) < FRAMES:
            rsp, last = number(frame, 'rsp'), frame
            # Those that gdb makes up from debugging information are not on the stack.
            if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                addresses.append(frame.pc())
                names.append(str(frame.name()))
            for start, end in ranges:
                if start <= rsp < end:
                    low, high = pieces.get((start, end), (rsp, rsp))
                    pieces[(start, end)] = (min(low, rsp), max(high, rsp))
            try:
                frame = frame.older()
            except gdb.error:
                frame = None
        self.out.write('P %x %s\n' % (addresses[0], registers))
        self.out.write('C %s\n' % self.memory(addresses[0], addresses[0] + 4))
        self.out.write('N %s\n' % ' '.join(names))
        self.out.write('F ' + ' '.join('%x' % address for address in addresses) + '\n')
        self.out.write('U %x\n' % last.unwind_stop_reason())
        if last.unwind_stop_reason() != OUTERMOST:
            # Perhaps there are frames that gdb does not see, on the main stack.
            pieces[self.stack] = self.stack
        for (start, end), (low, high) in pieces.items():
            # The red zone below, whole words.
            low, high = max(start, (low - 128) & ~7), min(end, (high + BEYOND) & ~7)
            self.out.write('S %x %s\n' % (low, self.memory(low, high)))


def run():
    for setting in ['pagination off', 'confirm off', 'backtrace past-main on', 'height 0', 'breakpoint pending on',
                    'debuginfod enabled off']:
        try:
            gdb.execute('set ' + setting)
        except gdb.error:
            pass
    gdb.execute('handle SIGUSR1 SIGUSR2 SIGSEGV nostop noprint pass')
    every, steps = int(os.environ['SAMPLE_EVERY']), int(os.environ['SAMPLE_STEPS'])
    command = 'run'
    if os.environ['SAMPLE_START']:
        start = gdb.Breakpoint(os.environ['SAMPLE_START'])
        gdb.execute(command, to_string=True)
        start.delete()
        command = 'continue'
    breakpoint = gdb.Breakpoint(os.environ['SAMPLE_BREAK'])
    breakpoint.ignore_count = int(os.environ['SAMPLE_SKIP'])
    gdb.execute(command, to_string=True)
    if every:
        breakpoint.delete()
    with open(os.environ['SAMPLE_OUT'], 'w') as out:
        sampler = Sampler(out)
        for step in range(steps):
            if not gdb.selected_inferior().pid:
                break
            sampler.sample()
            gdb.execute('stepi %d' % every if every else 'continue', to_string=True)
    if gdb.selected_inferior().pid:
        gdb.execute('kill')


run()
