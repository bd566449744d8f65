from tests.running import training
def test_a(device_program):
    f = device_program.run(training('(metric "l" (sum (:bad batch)) :below 20.0) still', batch=2, steps=2), bad=[1.0,2,19,21])
    print(f.status, f.err, f.reads, f.error, f.names, f.points("guard/l"), f.texts, f.checkpoints)
    assert 0
