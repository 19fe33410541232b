"""What subscribers notice when nodes of a live network die, stop, or are cut off.

`worker` is one node in a process of its own, which obeys commands; `cluster` starts and ends such
processes; `judging` compares what subscribers got with what they should have got, by brute force;
`trial` is one story: publish all the while, and let nodes fail.
"""
