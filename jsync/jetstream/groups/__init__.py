"""Consumer groups by key: the partitions of a stream, shared by members.

The format is that of orbit.go's `pcgroups`, whose members may be in the same group.

The parts, lowest first:

    engine       configurations, partitions, consumers, decisions (pure)
    member_loop  an active member: joins, pulls, hands over
    member       the public class of a member, for `ConsumerGroup.join`
    group        a group: its members, its lag
    manager      the calls of `JetStream` for groups
"""
