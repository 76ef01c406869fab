"""A worker without the SDK, from the published contract: it needs only grpcio and the generated code.

python -m grpc_tools.protoc -I proto/pulse/v1 --python_out=. --grpc_python_out=. pulse.proto
python plain_worker.py 127.0.0.1:8701 greet
"""

import json
import os
import sys
import threading
import time

import grpc
import pulse_pb2 as pb
import pulse_pb2_grpc as api

SLOTS = 10
address, topic = sys.argv[1:]
me = f"plain:{os.getpid()}:{time.time_ns()}"  # another name for each process
metadata = [("authorization", f"Bearer {os.environ['PULSE_TOKEN']}")] if "PULSE_TOKEN" in os.environ else []
work = api.WorkStub(grpc.insecure_channel(address))
held: list[pb.Lease] = []
stream, received = "", 0


def credit() -> pb.Credit:
    return pb.Credit(stream=stream, received=received, free=[SLOTS - len(held)], number=time.monotonic_ns())


def send_heartbeats() -> None:
    while True:
        time.sleep(4)
        try:
            work.Heartbeat(pb.HeartbeatRequest(worker=me, leases=held), timeout=5, metadata=metadata)
            work.UpdateCredit(pb.UpdateCreditRequest(credit=credit()), timeout=5, metadata=metadata)
        except grpc.RpcError as error:
            print("heartbeat failed:", error.code())


def run(job: pb.Assignment) -> pb.Report:
    report = pb.Report(job_id=job.job_id, lease_id=job.lease_id)
    try:
        report.result = json.dumps(f"Hello, {json.loads(job.payload)['name']}!")
        report.outcome = pb.COMPLETE
    except Exception as error:
        report.error, report.outcome = repr(error), pb.FAIL
    return report


threading.Thread(target=send_heartbeats, daemon=True).start()  # keeps the leases and the stream while handlers run
request = pb.StreamJobsRequest(worker=me, pools=[pb.Pool(topics=[topic], slots=SLOTS)], version="plain")
for message in work.StreamJobs(request, metadata=metadata):
    received, stream = max(received, message.sequence), message.hello.stream or stream
    jobs = message.assignments.jobs
    held = [pb.Lease(job_id=job.job_id, lease_id=job.lease_id) for job in jobs]
    reports = [run(job) for job in jobs]
    held = []
    if reports:
        work.ReportResults(pb.ReportResultsRequest(worker=me, reports=reports, credit=credit()), metadata=metadata)
