# Run by gdb: writes the stacks at the first hits of an instruction.
#
# What it needs is in the environment:
#   SEQUENCE_OUT     the file to write: for each hit a line of frames, the innermost first, each as FILE+OFFSET, where
#                    OFFSET is that of the byte in the file, hexadecimal
#   SEQUENCE_MODULE  the file with the instruction
#   SEQUENCE_OFFSET  the instruction's offset in it
#   SEQUENCE_HITS    how many hits
#   SEQUENCE_SET     variables of the program, NAME=VALUE, with spaces between: it has no others
import gdb
import os

MOST = 127


def mappings():
    with open('/proc/%d/maps' % gdb.selected_inferior().pid) as maps:
        for line in maps:
            parts = line.split(None, 5)
            if len(parts) > 5 and parts[5].startswith('/'):
                start, end = (int(part, 16) for part in parts[0].split('-'))
                yield start, end, int(parts[2], 16), parts[5].strip()


def shown(address):
    for start, end, offset, path in mappings():
        if start <= address < end:
            return '%s+%x' % (os.path.basename(path), address - start + offset)
    return '?+%x' % address


def stack():
    frame, frames = gdb.newest_frame(), []
    while frame is not None and len(frames) < MOST:
        # Those that gdb makes up from debugging information are not on the stack.
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            frames.append(shown(frame.pc()))
        try:
            frame = frame.older()
        except gdb.error:
            frame = None
    return frames


def entry():
    for line in gdb.execute('info auxv', to_string=True).splitlines():
        if 'AT_ENTRY' in line:
            return int(line.split()[-1], 16)


def run():
    for setting in ['pagination off', 'confirm off', 'backtrace past-main on', 'backtrace limit 0', 'height 0',
                    'startup-with-shell off', 'debuginfod enabled off']:
        try:
            gdb.execute('set ' + setting)
        except gdb.error:
            pass
    gdb.execute('unset environment')
    for variable in os.environ['SEQUENCE_SET'].split():
        gdb.execute('set environment ' + variable.replace('=', ' ', 1))
    gdb.execute('handle all nostop noprint pass', to_string=True)
    gdb.execute('starti', to_string=True)
    # By then all its modules are mapped. A static program begins there.
    if gdb.newest_frame().pc() != entry():
        gdb.Breakpoint('*%d' % entry(), temporary=True)
        gdb.execute('continue', to_string=True)
    wanted, module = int(os.environ['SEQUENCE_OFFSET']), os.path.realpath(os.environ['SEQUENCE_MODULE'])
    places = [start + wanted - offset for start, end, offset, path in mappings()
              if os.path.realpath(path) == module and offset <= wanted < offset + end - start]
    gdb.Breakpoint('*%d' % places[0])
    with open(os.environ['SEQUENCE_OUT'], 'w') as out:
        for _ in range(int(os.environ['SEQUENCE_HITS'])):
            gdb.execute('continue', to_string=True)
            if not gdb.selected_inferior().pid:
                break
            out.write(' '.join(stack()) + '\n')
    if gdb.selected_inferior().pid:
        gdb.execute('kill')


run()
