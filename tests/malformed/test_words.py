import re
def cut(words): return re.split(r" (?=[\w./]+=)", words)
