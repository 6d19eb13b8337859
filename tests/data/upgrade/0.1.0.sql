-- Written by make.py; README.md describes this file.
-- key: tsk_65c31d2af9b4_suYyMOuMlAitlkRGWY1kkAcDew22c77pHRTzy-6mt-o
-- session: dAfai2wVSukJt_FBRuJ7WZR9rAwv7WYX
-- installation: {"id":"96a04338-7e58-4d36-a514-5bbfcf3f03c3","had_rules_or_keys":true}
-- program: toolsieve 0.1.0
PRAGMA application_id = 1414744406;
PRAGMA auto_vacuum = 2;
PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
INSERT INTO "_sqlx_migrations" VALUES(1,'first','2026-11-26 02:27:29',1,X'F7C6ADE57D5424463DF09D207F79EBFC71FDAAD7628926490E95AB1F189B750400C2B2AF0AC3A5F44F32A4EE796AF096',562839);
INSERT INTO "_sqlx_migrations" VALUES(2,'used at','2026-11-26 02:27:29',1,X'E47DDAAB6ABDDF9114CF033782C98BD0C08266AC5450029802EE06CE4AAF997E52ADC0F22A3571B2944B19F319C20FA0',431689);
INSERT INTO "_sqlx_migrations" VALUES(3,'name of the program','2026-11-26 02:27:29',1,X'6A82556F3720B50852910BB3A9EF00DEFEB7C5DF56660055B0986051C7AAFF263CFD519560386AF70F5BDFD5B289E9EA',211773);
INSERT INTO "_sqlx_migrations" VALUES(4,'enrichment','2026-11-26 02:27:29',1,X'4543D996205C0B3859DA8E86D90880F452E4D6050054B2035B5AD6D24AF07B46DB54F61742695E0D17F7448AA9C66DE6',120984);
INSERT INTO "_sqlx_migrations" VALUES(5,'api keys','2026-11-26 02:27:29',1,X'2850A981DFBA15D986CE72210181418869AC46E22B27392645DE50BD4F6C946DCA79B9569D3A0F7D57076E9EC36BEEFD',176558);
INSERT INTO "_sqlx_migrations" VALUES(6,'policy','2026-11-26 02:27:29',1,X'1C25862D9EC6526293335FF466621A26EFE3CDC22A10AC8531B5A9219682C702DBA2C2D24F6B7C6B25BD9EAFDC45097E',107066);
INSERT INTO "_sqlx_migrations" VALUES(7,'audit','2026-11-26 02:27:29',1,X'EE1A7362F36A2904E76CB21C63701AE97557B15F4E86DC800CD886E57878C8A9134192C8F000D4BDD87D62E93D546202',206482);
INSERT INTO "_sqlx_migrations" VALUES(8,'toolsets and sessions','2026-11-26 02:27:29',1,X'C3B15AC5B135ED30F44CFDA40744E4F1E19566FCA69E14F4217717F5A0252B397DDAEF22582AF0F2514633EBFE00BFE3',644454);
INSERT INTO "_sqlx_migrations" VALUES(9,'tool facts','2026-11-26 02:27:29',1,X'CD479F219BA6A29E6F48328141D41D9376602EADE1FB2B03BFD4EFA2AE2B7DBBE1ADFD92E461C4E557B697F2697545D8',317271);
INSERT INTO "_sqlx_migrations" VALUES(10,'usage','2026-11-26 02:27:29',1,X'E5B782730242085880B4A98228596C006A55E6AC9EEAD491C32F7A2C0EDC00DCD682ACD6519528450836ABAA91F06C8C',951811);
INSERT INTO "_sqlx_migrations" VALUES(11,'secrets','2026-11-26 02:27:29',1,X'E293BE9A7C8FD107527F0713FC8920DD845E005F8DFE84CE14AB286A8F1D36F057F16181B563E13E5EDDC8FE89AD6FE2',132632);
INSERT INTO "_sqlx_migrations" VALUES(12,'loading','2026-11-26 02:27:29',1,X'108C2DC7E14A9BA768434F7D9782BDC8051BDE82AE4FE6F9EC1470C60914F9141459280D2AFA547B2E574AD5517951BF',419304);
INSERT INTO "_sqlx_migrations" VALUES(13,'session figures','2026-11-26 02:27:29',1,X'88358A1A1CA38F17095FA4D99CC52DAADF882E061105E0A4FB13A0A063EF79E8F98B4E254CECB3E79C30BCC1546C8D70',215678);
INSERT INTO "_sqlx_migrations" VALUES(14,'installation','2026-11-26 02:27:29',1,X'C4B63EF069FE19DA9DE770D671C0B15BAA9CD88C5055B50BEB64405E18EEC2D868930DC8B5FEA1D0F030F1F298155E11',162499);
INSERT INTO "_sqlx_migrations" VALUES(15,'definition seen','2026-11-26 02:27:29',1,X'9A0E63CCE7D44AE1C2B747391E753882855A29F734EBA10F24EBA90F00FC3DC6B79FA77134B65CE9425A12F6A1825F08',473743);
INSERT INTO "_sqlx_migrations" VALUES(20,'whole views','2026-11-26 02:27:29',1,X'B66A82F986BF2D1CCC895031E75C7F382592F4F41F043A47A3A45E297FF666F34F2747A71B9DA199E05EA150AA6096B2',626503);
INSERT INTO "_sqlx_migrations" VALUES(21,'enrichment fields','2026-11-26 02:27:29',1,X'FBC8BAED1293A33E1549E592BE721939FECFEF5DC5C643EE65028BE0E7EE34A30BF1EE82C5AA77E9AEAB778F11BA7286',1514470);
CREATE TABLE api_key (
    id           TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    hash         BLOB    NOT NULL CHECK (length(hash) = 32),
    servers      TEXT,             -- JSON array; NULL: all
    key_groups   TEXT    NOT NULL, -- JSON array
    trusted      INTEGER NOT NULL CHECK (trusted IN (0, 1)),
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER
, toolsets TEXT) STRICT, WITHOUT ROWID;
INSERT INTO "api_key" VALUES('169f2a7ff2d5','old',X'32B9AAE9A58A70549958C4BBD055A8A5214229501BDFF13ED8A7414CB31979C4',NULL,'[]',0,1795660051164,NULL,1795660051165,NULL,NULL);
INSERT INTO "api_key" VALUES('65c31d2af9b4','ci',X'BB641D7C5BADD0343791ABE4EB4849380D08330B7A939BBDB1FC5E680F46CBB8',NULL,'["staff"]',0,1795660051160,NULL,NULL,1795658400000,NULL);
CREATE TABLE audit (
    id          INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    principal   TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    server      TEXT,
    tool        TEXT,
    subject     TEXT,
    allowed     INTEGER NOT NULL CHECK (allowed IN (0, 1)),
    rule_source TEXT,
    rule_number INTEGER,
    outcome     TEXT,
    took_us     INTEGER NOT NULL,
    bytes       INTEGER
) STRICT;
INSERT INTO "audit" VALUES(1,1795660051163,'admin','key_create',NULL,NULL,'ci',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(2,1795660051165,'admin','key_create',NULL,NULL,'old',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(3,1795660051166,'admin','key_revoke',NULL,NULL,'old',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(4,1795660051168,'admin','policy_replace',NULL,NULL,'version 1',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(5,1795660051169,'admin','toolset_replace',NULL,NULL,'clock',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(6,1795660051173,'admin','tool_facts_replace','time','convert_time','version 1',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(7,1795660051177,'admin','tool_facts_replace','box','echo','version 1',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(8,1795660051179,'admin','definition_approve','time','get_current_time','ee4d468594154799d16da8d8ab84cebc999f961639097e7094df476cb162fe95',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(9,1795660051181,'admin','enrichment_replace',NULL,NULL,'time/get_current_time',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(10,1795660051185,'user:anna','secret_replace',NULL,NULL,'mine/token',1,NULL,NULL,NULL,0,NULL);
INSERT INTO "audit" VALUES(11,1795660051208,'service-key','call','box','echo',NULL,1,NULL,NULL,'success',5753,16);
INSERT INTO "audit" VALUES(12,1795660051220,'service-key','call','box','echo',NULL,1,NULL,NULL,'success',364,16);
INSERT INTO "audit" VALUES(13,1795660051223,'service-key','call','box','echo',NULL,1,NULL,NULL,'success',1088,16);
INSERT INTO "audit" VALUES(14,1795660051230,'service-key','call','box','echo',NULL,1,NULL,NULL,'success',281,16);
INSERT INTO "audit" VALUES(15,1795660051235,'key:ci','call','box','echo',NULL,1,NULL,NULL,'success',276,16);
CREATE TABLE chat_set (
    principal  TEXT    NOT NULL,
    chat       TEXT    NOT NULL,
    tools      TEXT    NOT NULL, -- JSON, see domain::chat::ChatSet
    updated_at INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (principal, chat)
) STRICT;
INSERT INTO "chat_set" VALUES('service-key','two','{"tools":[{"tool":{"server":"time","name":"convert_time"},"called":false},{"tool":{"server":"time","name":"get_current_time"},"called":false}]}',1795660051242,1);
INSERT INTO "chat_set" VALUES('service-key','three','{"tools":[{"tool":{"server":"time","name":"convert_time"},"called":false},{"tool":{"server":"time","name":"get_current_time"},"called":false}]}',1795660051244,1);
INSERT INTO "chat_set" VALUES('service-key','one','{"tools":[{"tool":{"server":"time","name":"convert_time"},"called":false},{"tool":{"server":"time","name":"get_current_time"},"called":false}]}',1795660051247,1);
CREATE TABLE definition (
    server       TEXT    NOT NULL,
    tool         TEXT    NOT NULL,
    fingerprint  BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    body         TEXT    NOT NULL, -- JSON
    is_new       INTEGER NOT NULL CHECK (is_new IN (0, 1)), -- its server was known before it
    first_seen   INTEGER NOT NULL,
    noticed      BLOB CHECK (length(noticed) = 32), -- another definition that was seen and logged
    noticed_at   INTEGER,
    approved_at  INTEGER, seen_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (server, tool)
) STRICT;
INSERT INTO "definition" VALUES('time','get_current_time',X'EE4D468594154799D16DA8D8AB84CEBC999F961639097E7094DF476CB162FE95','{"description":"Get the current time in a specific timezone","inputSchema":{"type":"object","properties":{"timezone":{"type":"string"}}}}',0,1795660049892,NULL,NULL,1795660051178,1795660051178);
INSERT INTO "definition" VALUES('time','convert_time',X'BEE154C40A0CB9F73DC4D9DFD370CB91A92E2D0B18ED9BDAD34506537504A923','{"description":"Convert a time between timezones","inputSchema":{"type":"object","properties":{"source_timezone":{"type":"string"},"time":{"type":"string"},"target_timezone":{"type":"string"}}}}',0,1795660049892,NULL,NULL,NULL,1795660049892);
INSERT INTO "definition" VALUES('time','listed/tools',X'44136FA355B3678A1146AD16F7E8649E94FB4FC21FE77E8310C060F61CAAFF8A','{}',0,1795660049892,NULL,NULL,NULL,1795660049892);
INSERT INTO "definition" VALUES('time','server',X'723B679F6D23F8944B1A08FEB0FA55DC45EED34ECD691F9615836F1D225B1DB6','{"title":"Test server","program":"test","instructions":"Use it for tests."}',0,1795660049961,NULL,NULL,NULL,1795660049961);
INSERT INTO "definition" VALUES('box','echo',X'E7BD3F4E32AC9353E5E4A55F06B42AA9ED1903AEB9DD3D9D38AF1CF3814FC732','{"description":"The tool echo.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','sleep',X'02BD0AAE973FAAF005E62A9AAEB2C81023D07B41E4C3C6C76CD58F658102E79B','{"description":"The tool sleep.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','wait_sleeping',X'4A67A31E3DCE2227C127FCC153972888CE25EF2397859E0255D984BAEEB99061','{"description":"The tool wait_sleeping.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','wait_cancelled',X'6C934CB9FB488246BE089E4C1485F922E6FC261507826F1517AC47CD2B4CD7AA','{"description":"The tool wait_cancelled.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','die',X'3526D8F1526A200F2036028DA28FF505CC779F01EE2FFBFFF9DB21B8D681BB10','{"description":"The tool die.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','add_tool',X'009A51E94F0B841674AFA249E5A56EDD03670EBDC859ABE331CCA35D63858576','{"description":"The tool add_tool.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','lists',X'B55961F7790A4492A23B557448AE40451974EC71BCF8D6CA588A16268942A169','{"description":"The tool lists.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','huge',X'DF07D27D9592010FCF8AE4A23CA12A2D349D2F4604D2B4417BA2FB8F6ACA1E8F','{"description":"The tool huge.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','odd',X'A122FCB894E792BBB087C02D62A7E2998C4800509F6E55DA7BA66C1CB6836DA2','{"description":"The tool odd.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','fail',X'A54B89A6BD71B0318F7F7FB108EFBD722DBCB65E8D4C28C43A04399A6EFFEE52','{"description":"The tool fail.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','error',X'C9B26E84DF8F9A74219410793760BD77B27D9555CFEE1AED4B7FF3DDA3B2BDAF','{"description":"The tool error.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','odd_error',X'6F1A1D78E4B6911AB30CC45C7409E071B6E3898CE249956F8DEBF1A310574BE9','{"description":"The tool odd_error.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','string_id',X'E7A2E555A7404262501773828A8AA52F7B8358760E6F7567DECA2B65C328E99E','{"description":"The tool string_id.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','progress',X'6A944DA95579F05262D628165B03C2684F9F5EFBFD62A152E4FD7B77267A5A9C','{"description":"The tool progress.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','junk',X'AE042AEC0A1DA38881A92A7DEBE5142677F47EF9C356CF7D438CBF5EE9D1F943','{"description":"The tool junk.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','not_json',X'7731C5E5E53F28809A0F7440272919F4A1BA7BC4B03159DA166472FCDED0A592','{"description":"The tool not_json.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','environment',X'3EF90B7E9159D2CA00981A39E3515C7F3DBE30758A159E239C7CEB2E797EBCAB','{"description":"The tool environment.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','process',X'AFEDF29C7960430819B3DCBF1BAF151B4564F1AC8E151E67160DC14F243F4C58','{"description":"The tool process.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','grandchild',X'7BE677FA36EC76BD9904E961A9D8B610212548F509DB21E9CFBD15F8A6A7A19D','{"description":"The tool grandchild.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','stderr',X'C9265B7A4DFE2AA7BF167B59FFDC2A02225851B075DD414661B6803E3D769CD2','{"description":"The tool stderr.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','client',X'8031CF91DB978D97ED1E4C7FA806A06B49ADD868C813D6739743D6CC7D80A6B0','{"description":"The tool client.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','ask',X'7C556B43AE69A567F113DFB97A9D1AC0D0CB92F2E5768A148E5D11C9EA3F18A5','{"description":"The tool ask.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','stop_reading',X'EC8D1C2B602F52EF5CC39CB768CA56CF2583BB7AF90CB13851F476E680116928','{"description":"The tool stop_reading.","inputSchema":{"type":"object"}}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','listed/tools',X'44136FA355B3678A1146AD16F7E8649E94FB4FC21FE77E8310C060F61CAAFF8A','{}',0,1795660049963,NULL,NULL,NULL,1795660049963);
INSERT INTO "definition" VALUES('box','server',X'723B679F6D23F8944B1A08FEB0FA55DC45EED34ECD691F9615836F1D225B1DB6','{"title":"Test server","program":"test","instructions":"Use it for tests."}',0,1795660049972,NULL,NULL,NULL,1795660049972);
INSERT INTO "definition" VALUES('mine','echo',X'09F39F6ED2CF1BA82C0D60DB3823F8241B73B00FA39FDFF6D8F3AD9614731AD6','{"description":"Say the arguments again","inputSchema":{"type":"object","properties":{}}}',0,1795660049974,NULL,NULL,NULL,1795660049977);
INSERT INTO "definition" VALUES('mine','sleep',X'A66BE6AAA1AA1A0C7526AA6A6B241F6049FD0DF142E14D5B7678FEAB82271C78','{"description":"Never answer","inputSchema":{"type":"object","properties":{}}}',0,1795660049974,NULL,NULL,NULL,1795660049977);
INSERT INTO "definition" VALUES('mine','process',X'49943B17E102AA090C769C75EF24178975FF8969245488DC7A3344CB7FC6E3C8','{"description":"Tell about the process","inputSchema":{"type":"object","properties":{}}}',0,1795660049974,NULL,NULL,NULL,1795660049977);
INSERT INTO "definition" VALUES('mine','grandchild',X'C88B3317C0FBECB45AE588CD776BC212B6405DD33169EFB92DC5F1F292E44A36','{"description":"Start a process","inputSchema":{"type":"object","properties":{}}}',0,1795660049974,NULL,NULL,NULL,1795660049977);
INSERT INTO "definition" VALUES('mine','listed/tools',X'44136FA355B3678A1146AD16F7E8649E94FB4FC21FE77E8310C060F61CAAFF8A','{}',0,1795660049974,NULL,NULL,NULL,1795660049977);
INSERT INTO "definition" VALUES('mine','server',X'723B679F6D23F8944B1A08FEB0FA55DC45EED34ECD691F9615836F1D225B1DB6','{"title":"Test server","program":"test","instructions":"Use it for tests."}',0,1795660049980,NULL,NULL,NULL,1795660049980);
CREATE TABLE enrichment (
    tool_hash  BLOB    NOT NULL CHECK (length(tool_hash) = 32), -- of server and definition
    model      TEXT    NOT NULL, -- the language model that wrote it; empty: an admin
    function    TEXT    NOT NULL,
    queries    TEXT    NOT NULL, -- JSON array of texts
    written_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL, tags TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (tool_hash, model)
) STRICT, WITHOUT ROWID;
INSERT INTO "enrichment" VALUES(X'A59BFFB95E9448D65B85AA5C64FA22F138E2E6B2FEC714F869D981F2DFE606F7','','Tells the hour anywhere on earth','["how late is it in Lima?"]',1795660051180,1795660051180,'[]');
CREATE TABLE feedback (
    selection TEXT    NOT NULL,
    server    TEXT    NOT NULL,
    tool      TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    verdict   TEXT    NOT NULL,
    PRIMARY KEY (selection, server, tool)
) STRICT, WITHOUT ROWID;
INSERT INTO "feedback" VALUES('01a215ad-f305-715e-b6e2-e9852690e0cf','time','get_current_time','service-key',1795660051215,'helpful');
INSERT INTO "feedback" VALUES('01a215ad-f313-71f4-b5a7-25d4d559918b','time','get_current_time','service-key',1795660051221,'helpful');
INSERT INTO "feedback" VALUES('01a215ad-f317-74f5-9756-3180a6f98ae7','time','get_current_time','service-key',1795660051225,'helpful');
INSERT INTO "feedback" VALUES('01a215ad-f31d-716e-ba34-e209af428aef','time','get_current_time','service-key',1795660051231,'helpful');
CREATE TABLE installation (
    only    INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    id      TEXT,            -- a UUID; NULL until the first start
    refused INTEGER NOT NULL -- counts writes whose commit failed
) STRICT;
INSERT INTO "installation" VALUES(1,'96a04338-7e58-4d36-a514-5bbfcf3f03c3',0);
CREATE TABLE listing (
    server       TEXT    NOT NULL PRIMARY KEY,
    title        TEXT,
    version      TEXT,
    instructions TEXT,
    tools        TEXT    NOT NULL, -- JSON array of the raw tools, in the server's order
    skipped      TEXT    NOT NULL, -- JSON array of {"tool", "reason"}
    fetched_at   INTEGER NOT NULL  -- milliseconds since 1970, as every time here
, program TEXT) STRICT;
INSERT INTO "listing" VALUES('time','Test server','1.2.3','Use it for tests.','[{"name":"get_current_time","description":"Get the current time in a specific timezone","inputSchema":{"type":"object","properties":{"timezone":{"type":"string"}}}},{"name":"convert_time","description":"Convert a time between timezones","inputSchema":{"type":"object","properties":{"source_timezone":{"type":"string"},"time":{"type":"string"},"target_timezone":{"type":"string"}}}}]','[]',1795660049962,'test');
INSERT INTO "listing" VALUES('box','Test server','1.2.3','Use it for tests.','[{"name":"echo","description":"The tool echo.","inputSchema":{"type":"object"}},{"name":"sleep","description":"The tool sleep.","inputSchema":{"type":"object"}},{"name":"wait_sleeping","description":"The tool wait_sleeping.","inputSchema":{"type":"object"}},{"name":"wait_cancelled","description":"The tool wait_cancelled.","inputSchema":{"type":"object"}},{"name":"die","description":"The tool die.","inputSchema":{"type":"object"}},{"name":"add_tool","description":"The tool add_tool.","inputSchema":{"type":"object"}},{"name":"lists","description":"The tool lists.","inputSchema":{"type":"object"}},{"name":"huge","description":"The tool huge.","inputSchema":{"type":"object"}},{"name":"odd","description":"The tool odd.","inputSchema":{"type":"object"}},{"name":"fail","description":"The tool fail.","inputSchema":{"type":"object"}},{"name":"error","description":"The tool error.","inputSchema":{"type":"object"}},{"name":"odd_error","description":"The tool odd_error.","inputSchema":{"type":"object"}},{"name":"string_id","description":"The tool string_id.","inputSchema":{"type":"object"}},{"name":"progress","description":"The tool progress.","inputSchema":{"type":"object"}},{"name":"junk","description":"The tool junk.","inputSchema":{"type":"object"}},{"name":"not_json","description":"The tool not_json.","inputSchema":{"type":"object"}},{"name":"environment","description":"The tool environment.","inputSchema":{"type":"object"}},{"name":"process","description":"The tool process.","inputSchema":{"type":"object"}},{"name":"grandchild","description":"The tool grandchild.","inputSchema":{"type":"object"}},{"name":"stderr","description":"The tool stderr.","inputSchema":{"type":"object"}},{"name":"client","description":"The tool client.","inputSchema":{"type":"object"}},{"name":"ask","description":"The tool ask.","inputSchema":{"type":"object"}},{"name":"stop_reading","description":"The tool stop_reading.","inputSchema":{"type":"object"}}]','[]',1795660049973,'test');
INSERT INTO "listing" VALUES('mine','Test server','1.2.3','Use it for tests.','[{"name":"echo","description":"Say the arguments again","inputSchema":{"type":"object","properties":{}}},{"name":"sleep","description":"Never answer","inputSchema":{"type":"object","properties":{}}},{"name":"process","description":"Tell about the process","inputSchema":{"type":"object","properties":{}}},{"name":"grandchild","description":"Start a process","inputSchema":{"type":"object","properties":{}}}]','[]',1795660049982,'test');
CREATE TABLE model (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO "model" VALUES(1,'toolsieve-minilm-int8-a14deb76c2a9');
CREATE TABLE policy (
    version  INTEGER NOT NULL PRIMARY KEY CHECK (version > 0),
    body     TEXT    NOT NULL, -- JSON
    saved_at INTEGER NOT NULL
) STRICT;
INSERT INTO "policy" VALUES(1,'{"default":null,"rules":[{"effect":"block","tools":["process"]},{"effect":"block","tags":["risky"],"principals":["key:ci"]}]}',1795660051167);
CREATE TABLE secret (
    owner      TEXT    NOT NULL, -- a principal
    server     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    key_id     TEXT    NOT NULL,
    nonce      BLOB    NOT NULL CHECK (length(nonce) = 12),
    sealed     BLOB    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (owner, server, name)
) STRICT, WITHOUT ROWID;
INSERT INTO "secret" VALUES('user:anna','mine','token','d2b5538b94aa170b',X'9B76ECCB6E0F2A96F7EFA9CF',X'32D094D0D27D4BD6A65AA93F91AAE4C1459B4FD09E93EB64967CDB266F64E72B',1795660051184);
CREATE TABLE selection_event (
    id        INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    kind      TEXT    NOT NULL CHECK (kind IN ('offered', 'called', 'searched')),
    selection TEXT,
    principal TEXT    NOT NULL,
    chat      TEXT,
    model     INTEGER REFERENCES model (id), -- offered, searched: what made the vector
    vector    BLOB,                          -- offered, searched: the message
    outcome   TEXT,                          -- called
    took_us   INTEGER                        -- called: microseconds
, recovered INTEGER, message TEXT, kept INTEGER, view BLOB) STRICT;
INSERT INTO "selection_event" VALUES(1,1795660051205,'offered','01a215ad-f305-715e-b6e2-e9852690e0cf','service-key','one',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "selection_event" VALUES(2,1795660051214,'called','01a215ad-f305-715e-b6e2-e9852690e0cf','service-key','one',NULL,NULL,'success',5753,0,NULL,NULL,NULL);
INSERT INTO "selection_event" VALUES(3,1795660051219,'offered','01a215ad-f313-71f4-b5a7-25d4d559918b','service-key','two',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "selection_event" VALUES(4,1795660051220,'called','01a215ad-f313-71f4-b5a7-25d4d559918b','service-key','two',NULL,NULL,'success',364,0,NULL,NULL,NULL);
INSERT INTO "selection_event" VALUES(5,1795660051223,'offered','01a215ad-f317-74f5-9756-3180a6f98ae7','service-key','three',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "selection_event" VALUES(6,1795660051224,'called','01a215ad-f317-74f5-9756-3180a6f98ae7','service-key','three',NULL,NULL,'success',1088,0,NULL,NULL,NULL);
INSERT INTO "selection_event" VALUES(7,1795660051229,'offered','01a215ad-f31d-716e-ba34-e209af428aef','service-key','four',NULL,NULL,NULL,NULL,NULL,NULL,27,X'83E006CD2C9D464AD89C13BACADD7F3A02F15FAFC315B105E7C7370A904A2CC5');
INSERT INTO "selection_event" VALUES(8,1795660051230,'called','01a215ad-f31d-716e-ba34-e209af428aef','service-key','four',NULL,NULL,'success',281,0,NULL,NULL,NULL);
INSERT INTO "selection_event" VALUES(9,1795660051234,'searched','01a215ad-f305-715e-b6e2-e9852690e0cf','service-key','one',NULL,NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "selection_event" VALUES(10,1795660051235,'called',NULL,'key:ci',NULL,NULL,NULL,'success',276,0,NULL,NULL,NULL);
CREATE TABLE selection_event_tool (
    event    INTEGER NOT NULL REFERENCES selection_event (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    server   TEXT    NOT NULL,
    tool     TEXT    NOT NULL,
    PRIMARY KEY (event, position)
) STRICT, WITHOUT ROWID;
INSERT INTO "selection_event_tool" VALUES(1,0,'box','echo');
INSERT INTO "selection_event_tool" VALUES(1,1,'time','convert_time');
INSERT INTO "selection_event_tool" VALUES(1,2,'time','get_current_time');
INSERT INTO "selection_event_tool" VALUES(2,0,'box','echo');
INSERT INTO "selection_event_tool" VALUES(3,0,'box','echo');
INSERT INTO "selection_event_tool" VALUES(3,1,'time','convert_time');
INSERT INTO "selection_event_tool" VALUES(3,2,'time','get_current_time');
INSERT INTO "selection_event_tool" VALUES(4,0,'box','echo');
INSERT INTO "selection_event_tool" VALUES(5,0,'box','echo');
INSERT INTO "selection_event_tool" VALUES(5,1,'time','convert_time');
INSERT INTO "selection_event_tool" VALUES(5,2,'time','get_current_time');
INSERT INTO "selection_event_tool" VALUES(6,0,'box','echo');
INSERT INTO "selection_event_tool" VALUES(8,0,'box','echo');
INSERT INTO "selection_event_tool" VALUES(10,0,'box','echo');
CREATE TABLE session (
    id         TEXT    NOT NULL PRIMARY KEY,
    principal  TEXT    NOT NULL,
    contents   TEXT    NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL
, mode TEXT NOT NULL DEFAULT 'full') STRICT, WITHOUT ROWID;
INSERT INTO "session" VALUES('dAfai2wVSukJt_FBRuJ7WZR9rAwv7WYX','key:ci','{"toolsets":["clock"],"servers":[],"tools":[]}',1795660051182,1795746451182,1795660051182,'full');
CREATE TABLE session_group (
    id      INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    kind    TEXT NOT NULL CHECK (kind IN ('toolset', 'server', 'tag')),
    name    TEXT NOT NULL,
    UNIQUE (session, kind, name)
) STRICT;
CREATE TABLE token_count (
    definition_hash BLOB    NOT NULL PRIMARY KEY CHECK (length(definition_hash) = 32),
    tokens          INTEGER NOT NULL CHECK (tokens >= 0)
, used_at INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
INSERT INTO "token_count" VALUES(X'1F6E65D8B62D821A2B17B3FC2B3E58D870DA871B4D369BC977B6BDE9528EEC3F',24,1795660049980);
INSERT INTO "token_count" VALUES(X'2001984DFCCF0CF31AB4ABEAF90233B6E91FC1FE17DB7CCEA0BA7C19E60E9CD6',23,1795660049970);
INSERT INTO "token_count" VALUES(X'26EC1671F7319FC190E3A3688C424045635CA45E0975C9C8F5F3DD0518F6A02C',23,1795660049970);
INSERT INTO "token_count" VALUES(X'2B3248721C4A10ECBB386AF1E81BE3586AB3B1E24E5E673BB9A570D8E62920CB',46,1795660049961);
INSERT INTO "token_count" VALUES(X'333166A94DE3376E85474EB996C9DBE2CFE63C5EF7737A2E51AE59A4D5F50A77',23,1795660049970);
INSERT INTO "token_count" VALUES(X'3B766E399B27A672A2A326D3D2D11AC69EA218D76A1938899486EAFC346A2A9B',25,1795660049970);
INSERT INTO "token_count" VALUES(X'46DF46267F7AB0F5F0FCA698588BC074B053EB8D947CA360E0AD16397D3ACA07',22,1795660049980);
INSERT INTO "token_count" VALUES(X'4E06EFAF19C8E2F6CE4D73F1F296CCA2A50AD7CFB6F40198ABC88FB33A40BDA3',23,1795660049970);
INSERT INTO "token_count" VALUES(X'53CAF9371BA42CD07139668B220C1A46A7C4BE90C00F1ED3A0EB03EF47C040B5',35,1795660049961);
INSERT INTO "token_count" VALUES(X'57F3FAFE91EB8A900F0F4417A230FD024A9C07D4C78918A17AF3354628A5265A',23,1795660049970);
INSERT INTO "token_count" VALUES(X'6CC53BC7E788263B39CD31CE3B921AB08420800997C09E3D67AA78C6B83FA68E',23,1795660049970);
INSERT INTO "token_count" VALUES(X'776F2C99828AA52FA8B96561EF8237E4E90C72EE5E16CCA6C260EEACD1073537',23,1795660049970);
INSERT INTO "token_count" VALUES(X'78432D4CEC842CC2DEF619C842F9412FF7AA09821FE511D5BC26AAF77821D31E',27,1795660049970);
INSERT INTO "token_count" VALUES(X'81A1051421332E68E6F62712DEBCECD0E25ECF04A79C0BAA601FEF71CAC09101',25,1795660049970);
INSERT INTO "token_count" VALUES(X'83C492268B546EC6A8026F87519CB194D455376FBE9984A7005C15ADFFB44E4B',23,1795660049970);
INSERT INTO "token_count" VALUES(X'83DF6BC0D618E1FF17AF11EA0AF4C63A52EB0C84EDEE2F9531B4B1FB90DE26F7',24,1795660049980);
INSERT INTO "token_count" VALUES(X'877F7DE3F0B39D03088F99DBCE729707BA0117AE33AD0503E87A9E345E3A1810',23,1795660049970);
INSERT INTO "token_count" VALUES(X'8A14EC04D9C1CE5898834BE510F956E557A7119BCD0218C5FE9FADADB2340541',24,1795660049970);
INSERT INTO "token_count" VALUES(X'983BB8F59F2E83845637F8FD0A3EF9830195FB97B1C99FAA597F1D075742C023',23,1795660049970);
INSERT INTO "token_count" VALUES(X'A5A443F7B03496EB694F35FD2930EC230B86DAF612635672822FA6D1577B2489',23,1795660049970);
INSERT INTO "token_count" VALUES(X'A6F362C9CB3B8CFFC77A03F8A42EFFBDA698DC22B7099222D1FC75490FF8AAC0',25,1795660049970);
INSERT INTO "token_count" VALUES(X'B1AFD59A22CC3A93F4B6BE5CF44BD69E16F1308FDE86C9E3743B9328C86A6C46',24,1795660049980);
INSERT INTO "token_count" VALUES(X'BBED957964224F76075A96E0391209538DBDCBEAF6E001685B5FA4E5A536C1E8',25,1795660049970);
INSERT INTO "token_count" VALUES(X'CCABFE60D4F8F6A19C030F815DEC9A8FF299EDF823BAD14D03A77B204CF9609E',23,1795660049970);
INSERT INTO "token_count" VALUES(X'D1C0AA6EFE1771A9D537D4708104DB7A5F217849B0451845ACB610F6D4F71B4D',25,1795660049970);
INSERT INTO "token_count" VALUES(X'D624380A764DD3457FA6D20A2B52A842BCEDA504FBD83D150089B8BCC40C6521',23,1795660049970);
INSERT INTO "token_count" VALUES(X'E193ECF8B511DDCBBFE3B946FC7AF0596F52D42E5155D67C23219FB1195A5ACA',25,1795660049970);
INSERT INTO "token_count" VALUES(X'EFD68E878F5593358787265A633F96FD1055BB19BFCDE41512A56E3B2577A50C',23,1795660049970);
INSERT INTO "token_count" VALUES(X'FAB9D563C42E1E0C5B2890D017F4E0874FCB75FC776DC1F4D1532A469CAE8862',27,1795660049970);
CREATE TABLE tool_facts (
    server     TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    facts      TEXT,             -- JSON; NULL: it was taken back
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (server, tool)
) STRICT, WITHOUT ROWID;
INSERT INTO "tool_facts" VALUES('box','echo',1,'{"tags":[],"synonyms":[],"description":null,"pinned":true}',1795660051174);
INSERT INTO "tool_facts" VALUES('time','convert_time',1,'{"tags":["risky"],"synonyms":["world clock"],"description":null,"pinned":false}',1795660051170);
CREATE TABLE toolset (
    name       TEXT    NOT NULL PRIMARY KEY,
    definition TEXT    NOT NULL, -- JSON
    saved_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "toolset" VALUES('clock','{"description":"What time it is","tools":["time__get_current_time"]}',1795660051169);
CREATE TABLE usage_day (
    day                INTEGER NOT NULL PRIMARY KEY,
    selections         INTEGER NOT NULL,
    searches           INTEGER NOT NULL,
    recovered_searches INTEGER NOT NULL,
    tokens_before      INTEGER NOT NULL,
    tokens_after       INTEGER NOT NULL
) STRICT;
INSERT INTO "usage_day" VALUES(20783,4,1,0,4164,2154);
CREATE TABLE usage_latency (
    day    INTEGER NOT NULL,
    server TEXT    NOT NULL,
    tool   TEXT    NOT NULL,
    bucket INTEGER NOT NULL,
    calls  INTEGER NOT NULL,
    PRIMARY KEY (day, server, tool, bucket)
) STRICT, WITHOUT ROWID;
INSERT INTO "usage_latency" VALUES(20783,'box','echo',32,2);
INSERT INTO "usage_latency" VALUES(20783,'box','echo',34,1);
INSERT INTO "usage_latency" VALUES(20783,'box','echo',40,1);
INSERT INTO "usage_latency" VALUES(20783,'box','echo',49,1);
CREATE TABLE usage_session (
    session            BLOB    NOT NULL PRIMARY KEY, -- a hash of whose it is and its name
    arm                TEXT    CHECK (arm IN ('static', 'dynamic')), -- of a comparison
    first_at           INTEGER NOT NULL,
    last_at            INTEGER NOT NULL,
    selections         INTEGER NOT NULL,
    initial_tools      INTEGER, -- of the first selection
    final_tools        INTEGER, -- of the last one
    tokens_before      INTEGER NOT NULL,
    tokens_after       INTEGER NOT NULL,
    searches           INTEGER NOT NULL,
    recovered_searches INTEGER NOT NULL,
    loads              INTEGER NOT NULL,
    unloads            INTEGER NOT NULL,
    calls              INTEGER NOT NULL,
    succeeded          INTEGER NOT NULL,
    tool_errors        INTEGER NOT NULL,
    longest_load_us    INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "usage_session" VALUES(X'2613C6CD1C6600674A9CE9B010C7DFF8','static',1795660051229,1795660051230,1,27,27,1041,1041,0,0,0,0,1,1,0,NULL);
INSERT INTO "usage_session" VALUES(X'38371A20F1E42A861B248ECAEAC9206C','dynamic',1795660051219,1795660051220,1,3,3,1041,371,0,0,0,0,1,1,0,NULL);
INSERT INTO "usage_session" VALUES(X'97E355DFE757A83352F9B2B5C47DE980','dynamic',1795660051223,1795660051224,1,3,3,1041,371,0,0,0,0,1,1,0,NULL);
INSERT INTO "usage_session" VALUES(X'B1F4EBD6845ABC00EFFB24F98F488BE1','dynamic',1795660051205,1795660051234,1,3,3,1041,371,1,0,0,0,1,1,0,NULL);
CREATE TABLE usage_session_load (
    session BLOB    NOT NULL REFERENCES usage_session (session) ON DELETE CASCADE,
    bucket  INTEGER NOT NULL,
    loads   INTEGER NOT NULL,
    PRIMARY KEY (session, bucket)
) STRICT, WITHOUT ROWID;
CREATE TABLE usage_tool (
    day         INTEGER NOT NULL,
    server      TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    offered     INTEGER NOT NULL,
    called      INTEGER NOT NULL,
    succeeded   INTEGER NOT NULL,
    tool_errors INTEGER NOT NULL,
    recovered   INTEGER NOT NULL,
    called_at   INTEGER NOT NULL, -- the last call; 0: none
    PRIMARY KEY (day, server, tool)
) STRICT, WITHOUT ROWID;
INSERT INTO "usage_tool" VALUES(20783,'box','add_tool',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','ask',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','client',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','die',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','echo',4,5,5,0,0,1795660051235);
INSERT INTO "usage_tool" VALUES(20783,'box','environment',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','error',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','fail',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','grandchild',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','huge',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','junk',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','lists',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','not_json',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','odd',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','odd_error',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','progress',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','sleep',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','stderr',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','stop_reading',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','string_id',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','wait_cancelled',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'box','wait_sleeping',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'mine','echo',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'mine','grandchild',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'mine','sleep',1,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'time','convert_time',4,0,0,0,0,0);
INSERT INTO "usage_tool" VALUES(20783,'time','get_current_time',4,0,0,0,0,0);
CREATE TABLE vector (
    model     INTEGER NOT NULL REFERENCES model (id) ON DELETE CASCADE,
    text_hash BLOB    NOT NULL CHECK (length(text_hash) = 32),
    data      BLOB    NOT NULL CHECK (length(data) % 4 = 0), used_at INTEGER NOT NULL DEFAULT 0, -- f32, little endian
    PRIMARY KEY (model, text_hash)
) STRICT;
INSERT INTO "vector" VALUES(1,X'0394F51C8104BEDC78F45C66D23B553FE3A1CCD43403CDE96538662D1F7C21A4',X'FC0F903C3BE7AB3C99922C3D2B71F3BBB8D426BD47D65F3D1C8918BC3AC6273C3F8D77BD78FC443D059508BE7FC41EBD942E89BDB416013E8CC58E3D32E3213D1009F53CCBB782BD591614BD5A35AF3D783304BCABA776BD6891643D5123893CE662CEBBCC3025BD793A033E8687E23BCA8AA23D4AAF8B3D2F0D43BC37E0553D43A3A7BDFC99C9BB7A83B73D4353363D09BFC53C3E84103D6C3518BDF79A69BDAE9861BDD29966BD69C88EBC5A01C63CC69F3BBD99040D3DB497CBBB9011CA3C897C553C3BA062BD700101BCA80EDBBCDBA14A3D545818BDEC14B7BCA7A5A83DF54BC2BCA2FE8FBB091A6C3D26132A3C30FA08BEFFB5EDBCE3F7C1BC0F30493C28C1C6BD37B0733D0361023DF8B23B3CAF2D19BCEB0433BCA5045ABD9D57BF3C1FBCE3BC905A54BDD60EB63B3C01AB3CE9C2793DD052C4BCC82D243D4D59463D188386BD882D833DFF539BBB0BAAEF3CD0E0073CA09B733CABF8ADBD5E55783DC832FA3C60ADD1BCA6845CBD189F683D0DF852BDBF3F7CBD4AE038BDEC80A13DE2D70ABD934668BD0D363F3C0A4D8D3D0F319339712A003EA4A6CFBDE5276B3D2EEB37BCF8782CBD3660863ACF4C91BD4AE98F3C5DAD4DBD451C04BD89F55DBD1E94A43DD96B323CE06A393C81759E3D464DBD3C51C9353DE6FB803C503092BDBD0E63BCD59E26BD4AF43FBD625E55BC1FBABFBBF57992BD374A2D3DFEF85234504FA03C7C79C9BCE9F98C3CBC14283DA422793AECBF0F3DBAA2C53BBC5C14BD42964FBC42FB7CBD798EC6BCF0FD30BDAECDB53D83BDF2BCFC58C6BD21D820BD31700FBC53ACE13D4ED417BD07821ABC6C61443D73F101BC2FF64C3D12B2403CE93F243CFB82533BDAEB1A3D80C9543DFE35C33D243A29BCBEA5DBBBBC5424BDF5E845BDFB71863CF2FE823C125A313D9EB0DCBC504B033CCE27493CBC0779BD1EFC723CFD52A9BC9B1509BC10AE7ABCDE6321BBAF7D2ABD0044043EA29832BD6745593D3F08CBBCFB790BBDDB3DF93C3C492BBD5F46A33C4C16E9BCE3E7F0BBA37C6C3D50DE82BD905F343D0205F63B562E68BCAA8C053CDC2D5FBD1E3BC93AD7E73F3D18E643BDAA35F1BCA24284BD4752963D95AFABBD4E8F4A3CAA8A6F3D06DBBBBC73F64FBBE1C587BD2477403DB4BF2D3D52586A3D16CD783DCFC4C93D2415863D446D81BD6F1D46BBEFD49D3C6492943D3FFFA2BC2EA672BD961129BB21078FBD6BA4D2BC2A35183CC2A2EE3CE1DEDB3BE962023EDCD0C23D4E5A3C339A59E33D2D6DA6BD0932A9BB2B679DBB55A4953D1BB242BDB26DC9B9E483E2BD2EC7343D8895A7BD77C13FBD37EEA13B1964A83CF457C8BC842CF53BF7D3853CDAF0143DC827653C75AF2D3DEE5B133D5AE2A8BC8C1F4D3DB31CA0BDB0C46BBCBF63D63D5D3FDDBB352C133E75071F3D9E7E25BD2789D93C3A4077BDD2FACEBD015D8FBDE7838B3C3FC3063D818EEA3C5D7DF53CB66C0C3D7ED744BDBF30943D0C688D3D9F4886BC434282BC07423F3C656AB0BC3925063EAF6196BC27EAD1B924A17FBC3E3E003D096F86BDE0F10D3D4EBF2ABDD98342BDE4AFE53DBFC5C3BCCACD053C8DA58FBDF626203DCCE14C3CEC57B83C19B98FBC69A2043D07F00ABD29F8833C0DAF43BC96285ABC6EDC053DF92A9B3D45DA0C3C28D86DBC3CCC54BD3784933D14B15C3C11FA803DCB3D10BDFDFEA03D9FB482BD25388C3CC36D3FBD6AAFA2BD9814703D50252F3C875F8ABD9256433D7BB1D73CE9DB093D16C1963DA8FFCABBC26907BD80F97F3B7BF80A3C87CE7F3D004E1D3C9D66743CD97887B629A5F73CDA08EE3B8AF0743C9EFB2DBD2DB0D23B3A96F9BD711FCABD792ED4BD628285BCB0B91A3DBC50243D017DA03C434D983D4921B5BC055921BDA848D4BC8B6A6A3C51A843BD503EC13B3F1850BCCE6156BC6E3AECBD8F4B5D3D33733E3CFC202F3D7A2A733C14E1A1BDE0B2C53D934E3C3DE07A3B3DDB7592BDB7495E3BC1ECFBBCD00A0A3B1C14943C6D057EBD2BCA67BD846577BDC6ED87BCCE4516BC14753C3D870DF03ACE1A0ABD772B4EBD129420BDB575953D57DDFA3C937899BD3EBD8A3C9EBD68BC47502FBD4D6899BCDE1FAF3DAC517ABCD2DF043D666ECC3D02F21ABB8DA4B9BDEA68E93CEC2318BB99F7A1BDD9C8393DF8C512BEBE3646BD',1795660050123);
INSERT INTO "vector" VALUES(1,X'00F39867543FE06636533E4E7C5585EEEA835F098DDA705A0DDEE87D55862635',X'BE71C73A2D971C3D165B6F3D5D7B8F3DC9EC2A3DAD4B37BDD1B5453DF0AAAA3DC8DF7ABDF241D1BD0CAC97BD8742883D3F99343D566B1A3D01A58DBCFA25E33A32B92D3D5342CE3CB0FB97BDAEB3013DA4CC76BDE9C6B63DD1B9733D027A573DA84F9DBD8DA08CBC92BDC93C03F76FB951558DBCD44ECABC19C6583C02E9B03C11EB893BC35465BCA8B561BBC7DD32BD13A924BD8CC0D6BC22E69BBCF37E14BDD20AC83BAD08A9BCD8DBB43C6D88A63C3628793D6AA5313DDB8DE5BC04DD343DDBCC8E3CFB2505BCA2F33B3C61D9A1BDF079893DD834B0BD99A7BB3C59005FBBD9F12CBDB479B6BAD1B1C4BDD24F803D3445D93D0F58E0BDDB4809BDB4D30A3D8AFE7F3C9737353D6F68ED3CF9B8A9BD29FA313CAE1CEFBC80CACE3C659DEE3B536A043D631C123DE87D50BD885E043D238E463DC1AC313D0088033DE39468BC352B9FBC4539D23B09907DBD5468543D6BCF0A3DDE9037BDD6DF473D028245BBB488F4BD4817E4BC8B39A23D0BCFA6BDE96AA2BD52F41F3D5E2251BC14E91BBD3C1A12BDDAC0773C3FD878BD079C893DD68D903C5E59EB3CDDB1B93D2DD6BDBC2C22A73B2331303C621E80BDB115973B2174AEBC27CDD93C942E2DBC4461D73CFE85633D0EBCEC3C410B8E3D1C00AB3B57BCC23D6C1F893D4557A13A47CE7FBD89EBFABC229BEE3C60B6AC3B37A1353DCF5AE7BCC94D52BDEBA0D2BC0A755834B4BAF23CD9D982BD23BA9E3C2743343B87B5EE3BA2E81C3D909393BD8FE76FBC0159283D0E0397BCD51BBB3C536DB43C0F5CC83D9178C0BD36FCB7BD476AA03D172685BD7714863D789704BBCF3718BDCB5DA23DA024AD3CBE621DBDE53C6C3DA81A6F3BEA31F03C5DD8783D10FBE2BDE904493D04911FBCBF7A8ABDD1FECA3C39EF9C3D3A406EBD20A6D73CB49CBA3D9BE5C1BC0B9F27BDBA5609BD71E7E9BC351A553D4B5A0B3B8FD535BD3D1D95BC9BEE23BD79C1C5BD93A293BD8D01E9BCB7DE9FBD2A8828BDBCAF1CBD7038673DB6E7BDBC7A5072BD12EE463D7BD2863D9A13603D1AD71B3C69CF0C3C6080C83D35888E3D310D19BD549200BD0DC687BD16950BBE36E768BD0D0E91BD8763253CCDFA333CDFE9893C1B7CEEBC475C913DCE6C173DE103433D81C71BBBE08EF43C9D7AB5BD7D3A83BCC10685BDCF5A66BD37FFD33D3D5161BDF2823DBC505A753DCD07003D3445153D5F0CB4BC3F1F00BDBBF04EBDA02EC3BC1CCC6EBD2EF80D3D81795D3D36045A3D124205BD0060B73387AFA6BD78C7823D2173273CDA41C0BD4921983DD6B47CBD888329BDBA90B13D041E3B3BA8C7C93C2107BB3DAFB3DCBCE986BBBCA9B65E3B4933183DB899893DDAF621BD2720B1BB132FF3BC1A61373DAB1BDFBD277C833D0B4043BBB75AC4BCC3F9F93C5A45113D5B2B103EE343D4BB1CEF52BC9C770FBD3DEE353DB81A24BD85F039BDD78697BB54EB1CBD81B5C8BC1079203D0B32DDBC3C1793BDEE4C1ABD2DD93C3D7B0DAABC6225A2BC5C48FC3C9528ECBC21DCCABDEF9171BCFC548DBDBB9BC93D75F83E3DA3B0A43C229753BD5569983D3972A03CB98E143CFF366EBDB077A33BB4B80F3C6AB6FBBC760FA0BC84BF25BDF144E63D82680ABE84B954BD3A3CEC3DD3F1FCBB7309843C9D84A9BD07ED1B3D2598B2BB0254B0BC5ABA603CB64D82BDF5609A3C8C79DF3DAE94743D85C08BBD9416A8BD1A0F9BBD50D7C43C8DC3B13C0B9518BDAA1ED23DEFE4B73C4D51783DECAF0FBD180A883D833E1B3CA8E1BABC68A9923C1245083D4437E7BC334E93BD55DB0ABC35495A3DE7E8D2B50A627A3A66EB133DEEB77B3B8F1798BC74BB223DE79782BC26D973BD63857A3D3530CBBD87F882BD2F099EBD8C640A3D5FD7DFBCA67924BDB16BCF3D15DD55BD0C7F313DB1D152BC75211B3DF19AE8BD0029DABB1BB6B73B52476EBB02B8993D1C32A83C754D1ABBB2255BBCDB368E3D642564BDA84A39BC99C4F53CAD80FABBEDD22D3D0296603C8B4061BABE6390BD9155313D44E7CABDB165753C36FB153CCFB192BBB7469CBCCBF5F53DBE6E723D5F3BC0BCCAF084BC0AC1433C80157DBD092E32BCF9A4D6BC24EFA0BC9B8877BC20337F3DA07C633D881190BC0DD9853DEDB8E6BB99B538BC4D7EDEBBCF3341BD4AB9C53C5D328D3B45F675BD2BAC2A3D',1795660050123);
INSERT INTO "vector" VALUES(1,X'02B5F3299FED420C2D313DD91B974792EBEAB7D7325B21E2078240400A089F01',X'0A6F3FBCB2C5183C0DF0F2BDAE2B71BD6AE8B43D85832D3CC3A178BD4A7D1B3D399E1E3BC9A24BBCC87F8C3D0465323D6FB8F53CD2978B3DDFFBD0BD045688BD4572B9BAD74723BC11C9323DDC21F03BB5C8BDBC7CF2D5B95811133E3340B9BDEFEE303D5AE84FBD018523BDC01257BD53FB1BBDE8FF63BD3933C83DB0D5043C82461ABB6A9B3D3CEA349C3D5B4D2CBD69EF86BD5B4B93BDC39FB13D5E8B7CB447C113BD71CA41BD88C83ABCE8C8AB3BAB493FBDEC96893D4B73163D86E07DBC0AE2923DFDAA0D3D87C044BD650229BC09C13CBCFC9FC63CF8EAAD3DDB8180BC7A018C3D2159C5BC6A926BBD8FF0E33BEE9869BCCC0438BD66047EBD5451013D7D18353DFFCA7E3DF9C9353DD1D5CABCB53C7E3C99C264BD32801A3DD58E6F3D22E5B83C2E7852BC7B18BA3CA308EF3BFC6DAF3D91D0023D0353FEBC8673BFBD2C4E863D249562BD8508A23D958234BA3A7DC33C0BCB20BD82EEDD3BE73A93BDB8CC323D2360F83B8559AEBB056E4D3D7385DEBD92FC11BC248C2DBD390889396603063D5A5F403C5F21433D475E813D511EB23BEFAFC4BC026E333D6AB9D1BD4D4C84BDA7BBF13C7B54033D242D4B3CF1701A3D686A8ABDCF010CBDF95B5DBDE402443CBB1A77BCD641E93CA3C4BEBC364A63BC43683E3C4983D2BDD62D4BBCBF81AABD77D261BD8CE9A6BD791A33BC6DB7ACBC9250FFBCF9AF223DAE241A34A021AA3BE7A2C6BC06B9363DE105BBBD48A20EBD03C302BDD4589F3D0506A83DF3CC13BDA17465BD21979BBD8EB1263CEA92B8BD7D5CC03CC3DB1ABD277A2FBD0D336BBD78EBB13DF0C69FBD1144AE3BBADF70BB41273FBD750BD0BCD089CB3B49817C3BA77AE8BCE2406E3D7AE6E0BDFD8A4E3D6278063D367957BD4327693D91C35BBC6D7693BC8D993B3DB8A1A2BCD5FC52BDBAE0533D3AC64ABD116187BDD146BA3D4673B5BCF004FC3C5C17373D88149CBD39FE3CBD780F89BD89C054BD66418D3CE88804BD48626D3D9F73253D0BDE27BD700502BD4A5B973D30AFBE3D0BB90DBD2386783D0FF72DBCF22625BDEAB4BE3DC064A7BCCD2C03BDF902BCBC6C2917BD1F4794BC8D30CFBC8058FCBC9A6BAB3D49629D3DC1ED143BA565083D46D4593D9A8994BDB465B93D04736DBCCD7505BDA26C02BC3A4D01BB280339BD85381BBD5F586EBDE9F39D3DA926453D4C2D083CDD6911BCB1FCF4BC6CBED5BB51BFF13C59045F3CA7408ABB11620F3C76E390BD1D439ABC3DA2913D90E08333E4BED5BA9D1277BC1EB6D93CD26C5E3DE255AE3C15B7223D485D75BDE839A23C4C6B85BC9D78453D4D9E153C87790F3DA645ECBD9B588DBD48A5B4BD89ABD23BEDBA8BBCAEDA063DBA90ADBC162BF53C950B5EBD6F446E3CFABBDB3D79DE4E3D768C293DB2442E3D7A22A33D0C83AE3C264301BB9102083DDDE405BD7583333DF4BF0ABDABC58A3D11BD47BDD41767BD06C8973DFF06F23C39CFD1BCC334D03CE6FF93BDE227B53D489A20BC449182BDBFC6483D9ED888BDA609AFBCD3CB2E3D59DF0C3E57EC603C7B0B213C5A8DCBBC4B352CBCCA32EABB3B66A13CFF05553D825E47BC3E26D4BC0443CEBB68F8973D2FCA11BC49A0633D69871EBD89CF87BB7310EABC600AB63C40248CBDB725B43C2F60C23C24F6573D4B85623DBE76BFBC93E9663C47D5A6BB3D50123DD3706C3D03EBAF3DBD29A23D010C933C80D380BDC3C0733DA4F9163DA57624BDC3F90B3D0AF1CF3CFC6F273DC138BA3BC79194BDE02623BDDA8AA3BDA98A933C4359513DBA44103D91D69CBDBF31423B7839D8B66C16BDBC5484113DC5E58B3DEA666DBDE0D3113E0533003D53DA2F3DE050983D9A954BBD311FACBDBE47DB3C0726BCBD6271123DFE5E55BDB2A283BBED0505BCD1C7173D2F3E623C608FC3BD3672BD3C38F2E53C6632B93C612278382A8A363DF3699DBD6B63B2BBDAEC80BCCB6C2ABD8875FFBBDE65F63C24421ABDD80B443D082E17BD814281BB13ED9EBC74ADB63D42126A3D7254B1BC0B1903BE0FEDA13DA87AF93D87FA243C6F51163DEE720BBD37C1463DA439853DB0CAAE3D316A9ABDB06734BD67B31A3DAAFF5EBC60959CBB9B483DBD1D57BD3D8BCF08BEFAFBFCBC1249FF3CD7935B3CC7FA75BAF71963BC989C573D480C01BD38C7FE3C4F3CDB3D',1795660050123);
INSERT INTO "vector" VALUES(1,X'0320DE6A5342EF3BA601DEEE357AC1E3E72CCC14DB675CA2CCEC44CCE15F239D',X'41E595BD5278393C810011BE3DBAC6BDABED62BD7D1636BD8577D23C57A7963D625FD1BCE2D2F3BC92AE0E3D1C3F1C3DA4B3933C9D598ABC89F00C3D4881D2BCA743193DCC079A3CD16FCD3D717915BD57C2B3BD7828413C505D94BDDF5A3BBD16A304BDC76479BD99D8343DB0B0F13BE7D61BBBA46EA0BCFB2D523CD525E1BB1CD2B4BDBB5E1E3C97FB333D929A8C3DDE97363CD7BDC53BFC1D81BD280056BD2590A0BC3A072CBCA7D49EBD219AC93C3A9277BC4D9197BDA438ACBCBADE7B3C780E963C879F0A3DAA4422BD74A601BC9E2257BD52410B3DD2B3F43C31EC703CC0C9673D909F6B3C6000AFBC9D5EAB3DACE106BD8F2B4A3D572885BD71DBFA3D026C943BC4FD483DC5A922BCBECF95BB8E9409BA1133EABDA1A99EBD86D96ABCEF4C81BD1D24503C9EA7FCBB14EE96BDD54B5F392C74363D46466C3DAD3503BED0155C3DF6F1C93CF74F30BDD5740E3D4149713C9B30C43D605B733DF758153DD9D6C03D9648263DF05B1ABD612F49BC693831BDA3E402BC73527CBD22FD1D3C5D278F3D49C8A2BC2418A3BCD349FA3D493743BDD2A0CEBC190E753BA84D82BDA44EDABCC32BD5BB1BDC8DBB10FA963CF11F2EBCDC5C713C3EA88DBDE026CABC2735D5BD9C9834BD0D32893D9569803B5EA369BD02A4903D942DAE3C9978CDBC06DE39BBFA98513D642932BA1D0B4BBCC83E0C3DCE22033DED16A03D39974F34DD3482BC436D0CBD9715C43C388EAB3DE5D267BC214E8A3D45B19F3D60EB4F3D2B74F1BD4DAB3ABD82C61BBDC44F3E3CF88475BDF69662BC7F4F1C3DEEA636BD57E6253D3E0CAC3DDC960D3C2DE96BBD243F58BD3EC932BD7572BABC1F438B3D9E6B233DA2B8463DB3FEA5BC6918283D358B653DB7978E3C6C6535B74CB219BCCE8553BBCF62983D247759BD7B1891BC4A6A8FBD3DA7B5BD86820F3C23622CBD6F8590BC8DA1A6BCC2DBE13BE94C4DBDFDC895BD69B087BD70B830BD03E14B3D06D0303CCF56CA3B91D3B5BC6FE0563D2A50C73DB088C23D86DAE1BC655D9DBC132F7D3C6D78D73CB693873DB400063DD4CA883CEB99773D1F82F9BC746ED23C0EBC803C632FAABCD9B191BCEE8C67BD361B513D98413EBCC1327EBD65A644BC00126D3D31D300BBAF68E53B8B8F8DBC1054CBBD8A6E8A3DED8933BD8F6E98BCDF12B8BD6B160FBD5864AFBBA7BC663D4843A73CBFDDAEBCDEAFDFBC19375FBD9EAAFFBCB40B533DF17811BDE66BEA3C41FE66BD9085BF3DBCA61B3D5C44A033815760BC5F0C9EBD1C3C3C3B9393CC3C4CC74F3C187F21BC601110BDBFC685BD3BA9CBBDE04CA13D4DB423BD33F5AF3B642F97BB324201BDF550C33DF748283DD3C507BDBC3B66BDF07314BD75F801B93AEB6CBD9D5A0F3C843FA03DD3BD9ABCAC2B023CAE0A57BD4B73A83D9103BE3C3E52D7BC393482BDADDD463CF94193B951CBC4BD905107BDCC47A3BB14A8873CA618033EB8E9523DF16888BC91621F3C77E0D53D4AF7633B761FE3BD6018993D7AC5723CEE4E80BAAD35A1BCDBA36C3B4EDD0A3C8FE4DD3CC479593C0D4A30BA29BC903D2F6E61BD2B0B69BDE185F33DE674873DA7219ABC553A983DFA83F83CDAD9173DFBB714BE46198EB97F97133D9D0E213D8BB46B3C6304393D2226BA3D03AD3ABDA82B413B22C7AF3DF991B0B92E68BF3C9CBB45BDFDBE9F3DBC5853BDC2708E3BC4F061BD68334ABCC9E066BC3EAF7E3D67DCD0BBED326F3DD0D287BC03C531BD835054BD7A8E073DC0D75EBC6341283DC32A06BD1A6295BDEBD3D13DBBBF0ABD528BDA3C6AC785BC0FFFD5B54717B4BD69A68DBC504E5B3DC0484BBA012B18BC55F1873D793339BD0941713C41E92FBB422F543D2C972B3DE760DEBD703C893C5FB32BBA6DDE073D071E9BBC2CFE6F3D16AB2A3D021594BD6A0D27BD09B7463C890DA73C3E47CC3DDAB1413D2498523CED779DBD6C7AB4BCB416893D12140A3D23E8443C6B83DBBC44A04A3DAF1BB13C5AA4123DD249873C7199563DCC7BF2BD0928A43D566B7F3CC937B73D467D41BD5AEC293B2FA56BBD82A6453C708E603DA025E73C5B8C57BD9C4DFBBCC300613BAF9674BDBDECCCBD7FF4EFBB679B2ABC0445013D35B9B9BC214E2B3C911DD03C91AED5BD1D95E83BB59D2D3D9B1002BE3E0B9F3D5B0A263D7C41CC3D',1795660051011);
INSERT INTO "vector" VALUES(1,X'011DBBE0998A5DE34769773B499CA424A8A96B85B717F326C2E80DCC4ECC3E25',X'E53166BD00EBE63B1457DEBD4B7481BDA765113C73E5D0BD404FEC3C4E833D3D3661A0BC9545033D887308BBF922DD3CD0F9343C43E552BD4834FFBB791A90BDE0BD41BDF79824BD111B3FBCDDBFDEBC8A07363DCCDCBFBC3E9A7EBD46693EBD9A4825BD86AE873BF8E51E3D8FC5DD3CF409A23D83B4BABD453B763D23CE253DF3446CBC856339BC9B05BD3D288BD93DDAE0503C964BFDBCBF9493BC26B876BC4BBD3ABB26FA79BD52BCA3BD223A65BCE244463D49CDBA3C8355A0BD2AA053BD5794B6BC4E641FBD6985F9BCE24FB4BC9CEE90BD9E4CC73C8F6D06BD9A521F3D9119A93D83B594BD2206D4BCB433483DB2C642398B704C3D97D206BE8587C83D135CC63C53E998BCB71EB83B4D0B9DBD354BE93DBFC5FABDBD4508BCA443403DF2DCFCBD1B6BA7BBF40B93BC7667C0BD8E8C37BD7F3CEFBC9C94083C1F8B9EBD760B303DCB90473D577D9FBCE8A6743C48BB0C3D1DC0A73DAA71AB3C280237BCE7C0303DD9AA763DF9665ABDFA8C523C82CB1EBD10D8333C5EA7F93BF343DE3C57B54A3D5062813BA13DB53D9BEEA93D416F8BBC77A3E63C1316B43C00C99FBDE1C4BBBC51E28FBDB56D1EBDD31B583D10A1EEBB402501BC80E373BD4BD95CBDFF9F843CA149923D5EE2963D1F63643DD8531E3D12D74F3C07F729BAA51411BCBE5B163D45C46D3D561035BD2504B6BCDB11A6BD066B18BCEE768C3DB11A37345167513C4C63DBBD710D023C5247C73C8A4398BDA62B8F3D122419BDEDCF323B578B94BBE695E13C9100C23C8997E3BC55EFCDBD98A55DBD1E5A7E3CD4E4DFBD5B82843D7DDFD63DDBC452BDC3F851BA4C3874BC6989AD3B3EF08ABD4C55BB3D9420E73B2B454F3DD74A5ABDD31144BC11881E3DB1D3843A187E173D09F2F93BC3387EBD9CAF813D3DCF863C8F58BFBBAFDC343D5624D33C263F403DB3139DBD32E965BC5B1C34BD177AA8BB44E6A63BE9E4EBBC87EA633C83D137BDBCA3253D6C07783D7E312B3DEC18A03D247C963C2C08313EA5F9613D17B2BDBD7D7B363D6310033D202F4FBD331C163D1AD5503D33273B3D7DE6463DDA92DEBD621E983D982BBD3DDAD94BBD5B44763DCFD2E7BC5256A33D9A2C9BBB070706BEDA8A793CD7C8893DB31C55BD500D153DF5766DBC6F1A353BBA097E3D29FA8DBD7A22F4BC2A6840BD535D1EBC0D855ABC706856BD36DC823DDC09DFBC6F433EBDABB764BC4F03DCBC6F5E39BCD78BF9BC27DC8E3C960507BDBD91AA3D03C81EBC61B0D933E24AE83CFD5460BD377D4DBBBAE6963D8B11083D6E93ACBCCF6A43BD894FB4BD92CD2F3C1AF44E3D7DFAC6BDCC9D3FBBB50F043DDF71203DCDAA663DB5F2CCBC3E1E913DA5FD803D424E74BCFCE85B3D002348BD3042D23D40D37A3DAC8D0DBC814594BCBAA9C1BC906BC23D563F5F3BAB95C7BC2D6E513C460584BB6F3448BDD59636BD2A3FA33CBA546FBDBCFAB6BDBBF5A63DC9FB9E3D5B70F43C700A06BD06C38C3D5434353D834FA3BD23E0083D7BA0C33BBBF6793C3087D0B9716CFCBC17134ABDD1F88FBBEDE8873D19C7753DE50B583C79A0F43CF67FA53AB0A6B13D6EF0963DDE6C7EBDB12D743A737ACE3CD131843C5EA037BC540B443AD90484BD1CAC783D4645133DEB4E893CA2FAD8BCD8ED4DBDCA05EA3C33E7DB3D0BCED13D90D7023B75E9FABC6706FD3C4B3F80BDE2870ABCBFC9ADBD65AB49BDA6EADBBCE34D68B9BF9381BC7EA51D3DF97046BDE9128DBD46D542BD1F12FC3CAD5F86BD67EB863BD0D227BD9CF8F3BC7F02363DD641923DAAC2963C6144D63ADFFCA0B6CD245FBBFADCD8BD6636743D5AF53C3C95092F3DE069CF3D0CC2C3BB39D9813D729FD43B8CCCF1BCC29633BD2C40AEBCF35332BB5FAAEEB9CEEA813DA848FEBC19DDF13C3F96D23C202794BD89490CBEC25434BB808264BD7DCF893D9938883DDAF7E13AD8C94ABD3F97003B27FDAD3C1AC6DA3C998780BCF39A873BE502833D3B1995BA9B59893D21F5773C322A4F3932A57BBCD4B3703D8B37B83B7503A2BB343041BDB582A13DBCF016BD90219E3AF670593CEF16A73C1950B5BD453253BDF6ECB4BC46C6AFBCCF2E0ABB4204F33B28AB273C03AE313D16B3FDBB2365133D8BBD353D336579BDCC558BBC9DD69B3C8D0F48BD7D6C683CDBDB973DC8CA7B3D',1795660051011);
CREATE INDEX chat_set_updated_at ON chat_set (updated_at);
CREATE INDEX selection_event_at ON selection_event (at);
CREATE UNIQUE INDEX api_key_name ON api_key (name) WHERE revoked_at IS NULL;
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_principal ON audit (principal, id);
CREATE INDEX audit_tool ON audit (server, tool, id);
CREATE INDEX session_principal ON session (principal, used_at);
CREATE INDEX session_expires ON session (expires_at);
CREATE INDEX selection_event_selection ON selection_event (selection) WHERE kind = 'offered';
CREATE INDEX selection_event_chat ON selection_event (principal, chat, id) WHERE kind = 'offered' AND chat IS NOT NULL;
CREATE INDEX feedback_at ON feedback (at);
CREATE INDEX usage_session_last ON usage_session (last_at);
COMMIT;
