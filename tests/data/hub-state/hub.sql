BEGIN TRANSACTION;
CREATE TABLE checks (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT UNIQUE,
        created REAL NOT NULL, kind TEXT NOT NULL, phase TEXT NOT NULL, outcome TEXT NOT NULL,
        likeness TEXT NOT NULL, nodes TEXT NOT NULL, record BLOB NOT NULL);
INSERT INTO "checks" VALUES(1,'20261118-111500-aaaaaa','key-1',1795000000.0,'pair','done','bad','67a241f8be8b162d1a690cc2c9a8bc56',' gpu-node-1 gpu-node-2 ',CAST('{"id":"20261118-111500-aaaaaa","request":{"kind":"pair","nodes":["gpu-node-1","gpu-node-2"],"where":{"pool":"train"},"test":{"tool":"perftest","operation":"write_bw","device":"mlx5_0","sizes":"1MiB","seconds":5},"note":"after a cable was replaced"},"requester":{"trigger":"page","name":"alice","role":"run"},"cost":{"nodes":2,"runs":1,"node_seconds":10.0,"seconds":12.0,"bytes":250000000000.0},"created":1795000000.0,"phase":"done","started":1795000001.0,"ended":1795000008.0,"runs_done":1,"verdict":{"outcome":"bad","reason":"threshold","message":"gpu-node-2 is slow","findings":[{"subject":"gpu-node-2","scope":"node","reason":"threshold","message":"41 % of the median","ratio":0.41,"suspects":["port mlx5_0"]}]},"baseline":null,"baseline_ok":true,"figure":23750000000.0}' AS BLOB));
INSERT INTO "checks" VALUES(2,'20261118-121500-bbbbbb',NULL,1795003600.0,'node','done','ok','fb77ff68f6f19fcdad0279c1c5bb5173',' gpu-node-1 gpu-node-2 ',CAST('{"id":"20261118-121500-bbbbbb","request":{"kind":"node","nodes":["gpu-node-1","gpu-node-2"],"where":{"pool":"train"},"test":{},"note":"after a cable was replaced"},"requester":{"trigger":"schedule","name":"nightly","role":"run"},"cost":{"nodes":2,"runs":1,"node_seconds":10.0,"seconds":12.0,"bytes":250000000000.0},"created":1795003600.0,"phase":"done","started":1795003601.0,"ended":1795003608.0,"runs_done":2,"verdict":{"outcome":"ok","reason":null,"message":"no fault found","findings":[]},"baseline":null,"baseline_ok":true,"figure":null}' AS BLOB));
INSERT INTO "checks" VALUES(3,'20261118-131500-cccccc','key-2',1795007200.0,'pair','running','','67a241f8be8b162d1a690cc2c9a8bc56',' gpu-node-1 gpu-node-2 ',CAST('{"id":"20261118-131500-cccccc","request":{"kind":"pair","nodes":["gpu-node-1","gpu-node-2"],"where":{"pool":"train"},"test":{"tool":"perftest","operation":"write_bw","device":"mlx5_0","sizes":"1MiB","seconds":5},"note":"after a cable was replaced"},"requester":{"trigger":"rest","name":"bot","role":"act"},"cost":{"nodes":2,"runs":1,"node_seconds":10.0,"seconds":12.0,"bytes":250000000000.0},"created":1795007200.0,"phase":"running","started":1795007201.0,"ended":null,"runs_done":0,"verdict":null,"baseline":null,"baseline_ok":true,"figure":null}' AS BLOB));
CREATE TABLE results (id TEXT PRIMARY KEY, blob BLOB NOT NULL);
INSERT INTO "results" VALUES('20261118-111500-aaaaaa',X'789C6D8FCD4EC42014855FA5396BA642B55387A51B1FC1453369608AB5710A0D508969FAEE5EAC3F3191DDE19C7BCF77DB157699B4F1909CC1BADE04C816C3BC1CB23808B05F51E1CCE0CDEC7CCCA9156E8917371948B857644B056721ED72BD324C26043564335B2E7D8DCCC6AB38E618921FA3E974C24FB8D3EF3113087E775F374706AD6C9FC63EBEEC4E47D35D3017677BC8EAB6A9F9FE4ABE9D37820B51F968C813CD69F7444977ED13B4B7CECAAB44E50F4F857A2396C114E2C48B477D1388837E02C1517405753D5367A4F0B1AC0436867CFA3F24ED37C7270AFBA388EB03A4596FBB');
INSERT INTO "results" VALUES('20261118-121500-bbbbbb',X'789C8B8E0500011500B9');
CREATE TABLE runs (
        check_id TEXT NOT NULL, number INTEGER NOT NULL, name TEXT, time REAL, result BLOB,
        PRIMARY KEY (check_id, number)) WITHOUT ROWID;
INSERT INTO "runs" VALUES('20261118-131500-cccccc',0,'nv-cccccc-0',1795007201.0,CAST('{"number":0,"nodes":["gpu-node-1","gpu-node-2"],"skipped":"peer_busy"}' AS BLOB));
INSERT INTO "runs" VALUES('20261118-131500-cccccc',1,'nv-cccccc-1',1795007202.0,NULL);
CREATE TABLE schedules (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "schedules" VALUES('nightly',CAST('{"every":86400.0,"since":1795000000.0,"last_success":1795003608.0}' AS BLOB));
CREATE INDEX checks_phase ON checks (phase, sequence);
CREATE INDEX checks_likeness ON checks (likeness, sequence);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('checks',3);
COMMIT;
PRAGMA user_version = 2;
